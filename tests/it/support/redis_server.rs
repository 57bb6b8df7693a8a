//! A Redis server for the tests, which exits when the test process does, even if that is killed.
//!
//! Every key in it contains an account ID, and account IDs are random. So tests share one server; only tests that
//! kill it start their own.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Longer than a start takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Shell script that kills the server when the write end of the shell's standard input closes. (`PR_SET_PDEATHSIG`
/// would kill it too early: it refers to the parent thread, and each test has its own thread.)
const GUARD: &str = r#"
"$@" </dev/null >/dev/null 2>&1 & server=$!
echo $server
cat >/dev/null
kill -KILL $server
wait $server"#;

pub struct RedisServer {
    port: u16,
    folder: TempDir,
    /// The guarding shell.
    guard: Mutex<Option<Child>>,
}

impl RedisServer {
    /// The server that the whole test process shares.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        SHARED.get_or_init(Self::own)
    }

    /// Starts a server of the test's own, which it may kill.
    pub fn own() -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let server = Self {
            port,
            folder: TempDir::new().unwrap(),
            guard: Mutex::default(),
        };
        server.start();
        server
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Starts the server, empty, on the port it had before. It accepts connections when this returns.
    pub fn start(&self) {
        let mut running = self.guard.lock().unwrap();
        assert!(running.is_none(), "it is running");
        let (port, folder) = (self.port.to_string(), self.folder.path().to_str().unwrap());
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "redis-guard", "redis-server"])
            .args(["--bind", "127.0.0.1", "--port", &port, "--dir", folder])
            .args(["--save", "", "--appendonly", "no"])
            .args(["--maxmemory-policy", "noeviction"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C goes to the tests only; the shell notices through the closed pipe.
            .process_group(0)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(guard.stdout.take().unwrap());
        said.read_line(&mut String::new()).unwrap();
        *running = Some(guard);
        drop(running);
        let deadline = Instant::now() + TIMEOUT;
        while !self.answers() {
            assert!(
                Instant::now() < deadline,
                "redis-server does not start: is it installed? scripts/install-servers does that"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the server as `kill -9` does. The process is gone when this returns.
    pub fn kill(&self) {
        let guard = self.guard.lock().unwrap().take();
        if let Some(mut guard) = guard {
            drop(guard.stdin.take());
            guard.wait().unwrap();
        }
    }

    /// Sends a command and returns the raw reply.
    pub fn command(&self, words: &[&str]) -> std::io::Result<String> {
        let mut written = format!("*{}\r\n", words.len());
        for word in words {
            written.extend(["$", &word.len().to_string(), "\r\n", word, "\r\n"]);
        }
        let mut socket = TcpStream::connect(self.address())?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.write_all(written.as_bytes())?;
        let mut said = vec![0; 64 << 10];
        let length = socket.read(&mut said)?;
        said.truncate(length);
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    fn answers(&self) -> bool {
        self.command(&["PING"])
            .is_ok_and(|said| said == "+PONG\r\n")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
