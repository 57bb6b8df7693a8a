//! `tollgate health`: asks a running gateway whether it takes requests, for images without curl and for scripts.

use std::time::Duration;

use axum::http::{Request, StatusCode, Uri};
use clap::Args;
use http_body_util::Full;
use serde_json::Value;

use super::{
    http_client::{Certificates, Peer},
    output::OutputOption,
};
use crate::config::is_loopback;

#[derive(Args)]
pub(crate) struct Options {
    /// The URL of the public listener; any certificate is accepted for an address of this machine
    #[arg(
        long,
        value_name = "URL",
        env = "TOLLGATE_HEALTH_URL",
        default_value = "http://127.0.0.1:8080"
    )]
    url: String,
    /// How long it may take to respond
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
    #[command(flatten)]
    output: OutputOption,
}

pub(crate) async fn run(options: &Options) -> Result<(), String> {
    let url = options.url.as_str();
    let peer = Peer {
        url,
        option: "--url",
        timeout: Duration::from_secs(options.timeout),
        certificates: certificates(url),
    };
    let (status, health) = ask(&peer).await?;
    let state = health["status"].as_str().ok_or_else(|| {
        format!("{url} does not respond like the public listener (status {status})")
    })?;
    if status.is_success() {
        return options.output.print(|| state.to_owned(), &health);
    }
    if options.output.json {
        options.output.print(String::new, &health)?;
    }
    Err(state.to_owned())
}

/// The status and the body of the peer's `/health`; null if the body is not JSON.
pub(super) async fn ask(peer: &Peer<'_>) -> Result<(StatusCode, Value), String> {
    let request = Request::get(peer.at("/health"))
        .body(Full::default())
        .map_err(|error| format!("{} is not a valid URL: {error}", peer.url))?;
    let (status, body) = peer.send(request).await?;
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}

/// A gateway's certificate has its public name, not `127.0.0.1`. Connections to this machine need no proof of who responds.
fn certificates(url: &str) -> Certificates {
    let url: Option<Uri> = url.parse().ok();
    if url.is_some_and(|url| url.host().is_some_and(is_loopback)) {
        return Certificates::Any;
    }
    Certificates::Trusted
}
