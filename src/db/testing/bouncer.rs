//! A private `PgBouncer` in transaction mode, in which each transaction may use another server connection.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::postgres_server::{PostgresServer, as_server};

/// Shell script that runs the program until the pipe from the test process closes.
const KEEPER: &str = r#""$@" & child=$!; cat > /dev/null; kill $child; wait $child"#;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A running `PgBouncer`; dropping it ends the process.
pub struct Bouncer {
    keeper: Child,
    port: u16,
}

impl Bouncer {
    /// Starts a pooler for all databases of the server.
    pub fn start(server: &PostgresServer) -> Self {
        let installed = Path::new("/usr/sbin/pgbouncer").exists();
        assert!(
            installed,
            "PgBouncer is missing: run scripts/install-servers"
        );
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
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < TIMEOUT, "PgBouncer does not listen");
            sleep(Duration::from_millis(10));
        }
        Self { keeper, port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
