//! Portkey's gateway: one Node process, which gets its upstream in headers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use super::{Contestant, size_on_disk};
use crate::{
    Done,
    chat::Api,
    load::Target,
    process::{Process, free_port},
    upstream::Upstream,
};

pub const NAME: &str = "Portkey";

const PACKAGE: &str = "node_modules/@portkey-ai/gateway";

pub struct Portkey {
    peers: PathBuf,
    folder: PathBuf,
    target: Target,
    process: Option<Process>,
}

impl Portkey {
    pub fn start(peers: &Path, upstream: &Upstream, folder: &Path) -> Done<Self> {
        let folder = folder.join("portkey");
        fs::create_dir(&folder)?;
        let caller = format!(
            "authorization: Bearer sk-bench\r\nx-portkey-provider: openai\r\n\
             x-portkey-custom-host: http://127.0.0.1:{}/v1\r\n",
            upstream.port
        );
        let target = Target {
            port: free_port()?,
            api: Api::Chat,
            path: "/v1/chat/completions".into(),
            model: "model".into(),
            callers: vec![caller],
        };
        let mut portkey = Self {
            peers: fs::canonicalize(peers)?,
            folder,
            target,
            process: None,
        };
        portkey.restart()?;
        Ok(portkey)
    }
}

impl Contestant for Portkey {
    fn name(&self) -> &'static str {
        NAME
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    fn restart(&mut self) -> Done<Duration> {
        self.process = None;
        let mut program = Command::new("node");
        program.arg(self.peers.join(PACKAGE).join("build/start-server.js"));
        program.args([format!("--port={}", self.target.port), "--headless".into()]);
        program.env("TRUSTED_CUSTOM_HOSTS", "127.0.0.1");
        program.env("NODE_ENV", "production");
        program.current_dir(&self.folder);
        let started = Instant::now();
        let log = self.folder.join("log");
        let mut process = Process::start(&program, &log)?;
        if let Err(failure) = process.wait_until_ready(self.target.port, "/") {
            let said = fs::read_to_string(log).unwrap_or_default();
            return Err(format!("{NAME}: {failure}\n{said}").into());
        }
        self.process = Some(process);
        Ok(started.elapsed())
    }

    fn size(&self) -> u64 {
        size_on_disk(&self.peers.join("node_modules"))
    }

    fn version(&self) -> String {
        let package = fs::read(self.peers.join(PACKAGE).join("package.json"));
        let package = package.unwrap_or_default();
        let package: serde_json::Value = serde_json::from_slice(&package).unwrap_or_default();
        package["version"].as_str().unwrap_or("?").to_owned()
    }

    fn is_peer(&self) -> bool {
        true
    }
}
