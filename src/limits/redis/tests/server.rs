//! A private Redis server for one test.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use redis::{Cmd, FromRedisValue, aio::MultiplexedConnection};
use tempfile::TempDir;

use crate::db::testing::fake_clock::FakeClock;

/// A running `redis-server`; dropping it kills the process.
pub(crate) struct Server {
    process: Child,
    pub port: u16,
    args: Vec<String>,
    folder: TempDir,
    clock: Option<FakeClock>,
}

/// Waits until the condition holds; panics after 15 seconds.
pub(crate) async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(15), "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

impl Server {
    pub(crate) async fn start(args: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        Self::start_in(folder, args).await
    }

    pub(crate) async fn start_in(folder: TempDir, args: &[&str]) -> Self {
        Self::start_by(None, folder, args).await
    }

    /// Starts a server whose clock can be set.
    pub(crate) async fn start_with_clock() -> Self {
        let folder = TempDir::new().unwrap();
        let clock = FakeClock::in_folder(folder.path());
        Self::start_by(Some(clock), folder, &[]).await
    }

    async fn start_by(clock: Option<FakeClock>, folder: TempDir, args: &[&str]) -> Self {
        let port = free_port();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let process = spawn(&folder, port, &args, clock.as_ref());
        let server = Self {
            process,
            port,
            args,
            folder,
            clock,
        };
        server.until_up().await;
        server
    }

    /// Sets how many seconds the server's clock is ahead of the machine's.
    pub(crate) fn set_clock(&self, seconds: i64) {
        self.clock.as_ref().unwrap().set(seconds);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        FakeClock::clear(self.process.id());
    }

    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.restart_killed().await;
    }

    pub(crate) async fn restart_killed(&mut self) {
        self.process = spawn(&self.folder, self.port, &self.args, self.clock.as_ref());
        self.until_up().await;
    }

    /// Sends the process a signal, `STOP` or `CONT`.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(status.unwrap().success());
    }

    pub(crate) async fn connection(&self) -> redis::RedisResult<MultiplexedConnection> {
        let client = redis::Client::open(self.url())?;
        client.get_multiplexed_async_connection().await
    }

    /// Runs a command, given as words separated by spaces.
    pub(crate) async fn run<T: FromRedisValue>(&self, words: &str) -> T {
        let mut connection = self.connection().await.unwrap();
        command(words).query_async(&mut connection).await.unwrap()
    }

    async fn until_up(&self) {
        eventually("a server that replies", async || {
            let Ok(mut connection) = self.connection().await else {
                return false;
            };
            let reply = command("PING").exec_async(&mut connection).await;
            reply.is_ok()
        })
        .await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        FakeClock::clear(self.process.id());
    }
}

fn command(words: &str) -> Cmd {
    let mut words = words.split_whitespace();
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command
}

fn spawn(folder: &TempDir, port: u16, args: &[String], clock: Option<&FakeClock>) -> Child {
    // A Sentinel's configuration file must come before its options.
    let (file, args): (Vec<&String>, _) = args.iter().partition(|arg| arg.contains(".conf"));
    let mut command = Command::new("redis-server");
    if file.is_empty() {
        command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
    }
    command.envs(clock.into_iter().flat_map(FakeClock::environment));
    command
        .args(file)
        .args(["--port", &port.to_string()])
        .args(args)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed")
}
