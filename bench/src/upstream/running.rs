//! The upstream in a child process.

use std::{
    env, fs,
    path::Path,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{LISTENING, RELEASE};
use crate::{Done, plain_http, process::Process};

pub struct Upstream {
    process: Process,
    pub port: u16,
}

impl Upstream {
    pub fn start(folder: &Path) -> Done<Self> {
        let mut program = Command::new(env::current_exe()?);
        program.arg("upstream");
        let log = folder.join("upstream.log");
        let process = Process::start(&program, &log)?;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(10) {
            let said = fs::read_to_string(&log)?;
            let said = said.strip_prefix(LISTENING);
            // The port number is complete once its line has ended.
            if let Some((port, _)) = said.and_then(|said| said.split_once('\n')) {
                let port = port.parse()?;
                return Ok(Self { process, port });
            }
            sleep(Duration::from_millis(1));
        }
        Err("the upstream does not start".into())
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends held streams, each with its usage.
    pub fn release(&self) -> Done {
        match plain_http::ask(self.port, RELEASE, None, Some(&json!({})))?.status {
            200 => Ok(()),
            status => Err(format!("the upstream answered {status}").into()),
        }
    }
}
