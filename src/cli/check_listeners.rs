//! The listeners in `tollgate check`: whether a gateway could listen there, or one runs there already.

use std::{io, net::SocketAddr, time::Duration};

use socket2::{Domain, Socket, Type};

use super::{
    health,
    http_client::{Certificates, Peer},
};
use crate::{config::Config, server::reachable};

/// A gateway on this machine answers within milliseconds; another program may never do.
const TIMEOUT: Duration = Duration::from_secs(1);

pub(super) enum Listener {
    Free(String),
    /// A gateway listens there, perhaps the one of this configuration.
    Running(String),
    Wrong(String),
}

/// Probes the public and the operator listener. The ports of the gateway that runs with this store are taken by itself;
/// with shared stores it is known by its answer. The operator listener refuses every request without the token, so it is taken
/// for that of the gateway which runs on the public one.
pub(super) async fn probe(config: &Config, store_in_use: bool) -> [Listener; 2] {
    let scheme = config.server.tls.as_ref().map_or("http", |_| "https");
    let public = bind(config.server.listen);
    let mut running = store_in_use;
    if !running && is_in_use(&public) {
        running = is_gateway(scheme, config.server.listen).await;
    }
    let operator = bind(config.operator.listen);
    [
        listener(config.server.listen, public, running),
        listener(config.operator.listen, operator, running),
    ]
}

fn listener(address: SocketAddr, bound: io::Result<()>, running: bool) -> Listener {
    match bound {
        Ok(()) => Listener::Free(format!("{address} is free")),
        bound if is_in_use(&bound) && running => Listener::Running(format!(
            "{address} is in use by a gateway that is running; before another one is started there, stop it"
        )),
        bound if is_in_use(&bound) => Listener::Wrong(format!(
            "{address} is in use by another program; stop it, or choose another port"
        )),
        Err(error) => Listener::Wrong(format!("{address} cannot be used: {error}")),
    }
}

/// Takes the address without listening, which fails if a program listens there.
fn bind(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

fn is_in_use(bound: &io::Result<()>) -> bool {
    let kind = bound.as_ref().err().map(io::Error::kind);
    kind == Some(io::ErrorKind::AddrInUse)
}

/// Whether the public listener of a gateway answers there, ready or not.
async fn is_gateway(scheme: &str, address: SocketAddr) -> bool {
    let url = format!("{scheme}://{}", reachable(address));
    let peer = Peer {
        url: &url,
        option: "server.listen",
        timeout: TIMEOUT,
        certificates: Certificates::Any,
    };
    let answer = health::ask(&peer).await;
    answer.is_ok_and(|(_, body)| body["service"] == "tollgate")
}
