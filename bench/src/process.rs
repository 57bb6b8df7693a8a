//! A child process that runs only as long as it is measured.

use std::{
    fs::File,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::{Done, plain_http};

/// Open files per process: ten thousand streams need two each, in and out.
pub const FILES: u64 = 65_536;

/// A Python gateway starts slowly.
const TIMEOUT: Duration = Duration::from_mins(1);

pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a program with its output in a file. It gets SIGTERM when this process dies.
    pub fn start(program: &Command, log: &Path) -> Done<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]);
        command.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        if let Some(folder) = program.get_current_dir() {
            command.current_dir(folder);
        }
        let log = File::create(log)?;
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn()?;
        Ok(Self { child })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it responds with 200 at this path.
    pub fn wait_until_ready(&mut self, port: u16, path: &str) -> Done {
        let started = Instant::now();
        while started.elapsed() < TIMEOUT {
            let answer = plain_http::ask(port, path, None, None);
            if answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("it ended with {status}").into());
            }
            sleep(Duration::from_micros(500));
        }
        Err("it does not become ready".into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(10) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_port() -> Done<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Raises the limit for this process and its children; if that is not permitted, to the highest allowed value.
/// Returns the limit.
pub fn allow_many_files() -> u64 {
    let all = Rlimit {
        current: Some(FILES),
        maximum: Some(FILES),
    };
    if setrlimit(Resource::Nofile, all).is_err() {
        let most = getrlimit(Resource::Nofile).maximum;
        let current = most.map(|most| most.min(FILES));
        let maximum = most;
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(FILES)
}
