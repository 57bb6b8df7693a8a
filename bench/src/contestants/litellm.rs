//! `LiteLLM`'s proxy without a database: it charges nothing and counts nothing.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::Read as _,
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

pub const NAME: &str = "LiteLLM";

pub struct LiteLlm {
    installed: PathBuf,
    folder: PathBuf,
    /// `LiteLLM` does not start without a master key, nor with one that can be guessed.
    master_key: String,
    target: Target,
    process: Option<Process>,
}

impl LiteLlm {
    pub fn start(peers: &Path, upstream: &Upstream, folder: &Path) -> Done<Self> {
        let folder = folder.join("litellm");
        fs::create_dir(&folder)?;
        let configuration = format!(
            "model_list:\n  - model_name: model\n    litellm_params:\n      model: openai/model\n      \
             api_base: http://127.0.0.1:{}/v1\n      api_key: sk-bench\n",
            upstream.port
        );
        fs::write(folder.join("config.yaml"), configuration)?;
        let master_key = random_key()?;
        let target = Target {
            port: free_port()?,
            api: Api::Chat,
            path: "/v1/chat/completions".into(),
            model: "model".into(),
            callers: vec![format!("authorization: Bearer {master_key}\r\n")],
        };
        let mut litellm = Self {
            installed: fs::canonicalize(peers)?.join(".venv"),
            folder,
            master_key,
            target,
            process: None,
        };
        litellm.restart()?;
        Ok(litellm)
    }
}

impl Contestant for LiteLlm {
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
        let port = self.target.port.to_string();
        let mut program = Command::new(self.installed.join("bin/litellm"));
        program.args(["--host", "127.0.0.1", "--port", &port]);
        // A process per core, as its documentation recommends.
        program.args(["--num_workers", "2", "--telemetry", "False", "--config"]);
        program.arg(self.folder.join("config.yaml"));
        program.env("LITELLM_MASTER_KEY", &self.master_key);
        program.env("LITELLM_LOG", "ERROR");
        program.env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
        program.current_dir(&self.folder);
        let started = Instant::now();
        let log = self.folder.join("log");
        let mut process = Process::start(&program, &log)?;
        if let Err(failure) = process.wait_until_ready(self.target.port, "/health/liveliness") {
            let said = fs::read_to_string(log).unwrap_or_default();
            return Err(format!("{NAME}: {failure}\n{said}").into());
        }
        self.process = Some(process);
        Ok(started.elapsed())
    }

    fn size(&self) -> u64 {
        size_on_disk(&self.installed)
    }

    fn version(&self) -> String {
        let mut pip = Command::new(self.installed.join("bin/python"));
        let said = pip.args(["-m", "pip", "show", "litellm"]).output();
        let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let said = said.unwrap_or_default();
        let version = said.lines().find_map(|line| line.strip_prefix("Version: "));
        version.unwrap_or("?").to_owned()
    }

    fn is_peer(&self) -> bool {
        true
    }
}

fn random_key() -> Done<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut key = String::from("sk-");
    for byte in bytes {
        write!(key, "{byte:02x}")?;
    }
    Ok(key)
}
