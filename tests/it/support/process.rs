//! The `tollgate` binary in a child process.

use std::{
    collections::BTreeMap,
    io::Read,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Longer than any step takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The binary with these arguments and the few environment variables that it needs.
pub fn tollgate(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).env_clear();
    for kept in ["PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"] {
        command.envs(std::env::var(kept).map(|value| (kept, value)));
    }
    if arguments[0] == "check" {
        // The default port may be in use on this machine.
        command.env("TOLLGATE__SERVER__LISTEN", "127.0.0.1:0");
        command.env("TOLLGATE__OPERATOR__LISTEN", "127.0.0.1:0");
    }
    command.envs(environment.iter().copied());
    command
}

/// Runs the binary until it exits.
pub fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    tollgate(arguments, environment).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program writes UTF-8")
}

/// A running process, killed on drop.
pub struct Process {
    child: Child,
    stdout: Captured,
    stderr: Captured,
}

struct Captured {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Captured {
    fn new(mut pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let written = text.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut buffer) {
                written.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self {
            text,
            reader: Some(reader),
        }
    }

    fn text(&self) -> String {
        text(&self.text.lock().unwrap())
    }

    fn all(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.text()
    }
}

/// Exit code and output of a process that has ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    pub fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = tollgate(arguments, environment);
        let command = command.stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = Captured::new(child.stdout.take().unwrap());
        let stderr = Captured::new(child.stderr.take().unwrap());
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// Starts `tollgate dev` on free ports and waits until it is ready; also returns the contents of `dev.env`.
    pub async fn dev(data: &Path) -> (Self, BTreeMap<String, String>) {
        let data_text = data.to_str().unwrap();
        let arguments = [
            "dev",
            "--port",
            "0",
            "--operator-port",
            "0",
            "--data",
            data_text,
        ];
        let mut process = Self::start(&arguments, &[]);
        process.until_stdout("Tollgate is ready").await;
        let written = std::fs::read_to_string(data.join("dev.env")).unwrap();
        let pairs = written.lines().map(|line| line.split_once('=').unwrap());
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        (process, pairs.collect())
    }

    /// Starts `tollgate serve` with JSON logs and waits until it is ready; also returns its public and operator
    /// addresses.
    pub async fn serve(
        config: &Path,
        environment: &[(&str, &str)],
    ) -> (Self, SocketAddr, SocketAddr) {
        let arguments = ["serve", "--config", config.to_str().unwrap()];
        let mut process = Self::start(&arguments, environment);
        process
            .until(|process| process.stderr().contains("is ready at"))
            .await;
        let stderr = process.stderr();
        let line = stderr.lines().find(|line| line.contains("is ready at"));
        let line: Value = serde_json::from_str(line.unwrap()).expect("a log line is JSON");
        let address = |field: &str| line[field].as_str().unwrap().parse().unwrap();
        (process, address("public"), address("operator"))
    }

    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until `done` holds; panics if the process ends first.
    pub async fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !done(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {}", self.stderr());
            assert!(Instant::now() < deadline, "timed out: {}", self.stderr());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn until_stdout(&mut self, words: &str) {
        self.until(|process| process.stdout().contains(words)).await;
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> usize {
        self.status("VmRSS:")
    }

    /// Peak resident memory in bytes.
    pub fn most_memory(&self) -> usize {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        let kilobytes = line.split_whitespace().nth(1).unwrap();
        kilobytes.parse::<usize>().unwrap() * 1_024
    }

    /// Sends a signal by its name, e.g. `TERM`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let mut kill = Command::new("kill");
        let sent = kill.args([&format!("-{name}"), &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until the process exits by itself.
    pub async fn ended(mut self) -> Ended {
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "it did not exit: {}",
                self.stderr()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        Ended {
            code: status.code(),
            stdout: self.stdout.all(),
            stderr: self.stderr.all(),
        }
    }

    pub async fn terminated(self) -> Ended {
        self.signal("TERM");
        self.ended().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
