//! Through `PgBouncer` in transaction mode, where each transaction may have another connection.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use super::*;
use crate::{
    postgres::Address,
    testing::postgres_server::{PostgresServer, as_server},
};

/// Ends with the test process, whose end of the pipe closes.
const KEEPER: &str = r#""$@" & child=$!; cat > /dev/null; kill $child; wait $child"#;

struct Bouncer {
    keeper: Child,
    port: u16,
}

impl Bouncer {
    fn start(server: &PostgresServer) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let ini = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n",
            server.port()
        );
        let ini = server.write_file(&format!("pgbouncer.{port}.ini"), &ini);
        let program = as_server("pgbouncer");
        drop(free);
        let mut keeper = Command::new("sh");
        keeper
            .args(["-c", KEEPER, "keeper-of-pgbouncer"])
            .arg(program.get_program())
            .args(program.get_args())
            .arg("-q")
            .arg(ini)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let keeper = keeper.spawn().unwrap();
        Self { keeper, port }
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_paid_for_through_a_bouncer() {
    if !Path::new("/usr/sbin/pgbouncer").exists() {
        return;
    }
    let direct = with(DOLLAR).await;
    let Place::Database { server, name } = &*direct.place else {
        unreachable!("it was opened so")
    };
    let bouncer = Bouncer::start(server);
    until("the bouncer listens", async || {
        TcpStream::connect(("127.0.0.1", bouncer.port)).is_ok()
    })
    .await;
    let url = format!("postgres://postgres@127.0.0.1:{}/{name}", bouncer.port);
    let (address, clock) = (
        Address::parse(&url).unwrap(),
        Clock::Manual(direct.now_ms.clone()),
    );
    let opened = Shared::open(address, Durability::Power, Duration::from_secs(10), clock);
    let ledger = Arc::new(Ledger::Shared(opened.await.unwrap()));
    let paying = Arc::new(direct.with(ledger));
    let calls = (0..12).map(|_| {
        let paying = paying.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                let mut held = paying.hold_after_all().await.unwrap();
                charge(&mut held, COST).await.unwrap();
                drop(paying.hold_after_all().await.unwrap());
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let left = DOLLAR - 60 * COST;
    assert_eq!((paying.balance().await, paying.held().await), (left, 0));
    paying.assert_sound().await;
    let (model, enabled) = ("svc-standard", Some(false));
    let set = paying.ledger.set_model(model, enabled, None).await;
    assert!(!set.unwrap().enabled);
    assert_eq!(direct.balance().await, left);
    paying.ledger.close().await;
}
