//! The gateway as it runs in production: accounts, keys, credit and limits, every response charged.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Contestant, size_on_disk, stores::Stores};
use crate::{
    Done,
    chat::Api,
    load::Target,
    plain_http,
    process::{Process, free_port},
    upstream::Upstream,
};

const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";

/// Each account has its own key and credit.
const ACCOUNTS: usize = 50;

pub const SHARED: &str = "tollgate (PostgreSQL, Redis)";

/// What a charge survives, with embedded stores.
#[derive(Clone, Copy)]
pub enum Durability {
    Power,
    Process,
}

impl Durability {
    pub fn name(self) -> &'static str {
        match self {
            Self::Power => "tollgate (power)",
            Self::Process => "tollgate (process)",
        }
    }

    fn value(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Process => "process",
        }
    }
}

pub struct Tollgate {
    name: &'static str,
    program: PathBuf,
    folder: PathBuf,
    operator: u16,
    target: Target,
    process: Option<Process>,
    /// Dropped last, because a stopping gateway still writes to them.
    stores: Option<Stores>,
}

impl Tollgate {
    pub fn on_files(
        program: &Path,
        upstream: &Upstream,
        folder: &Path,
        durability: Durability,
    ) -> Done<Self> {
        let value = durability.value();
        let folder = folder.join(value);
        let lines = format!(
            "store.url = \"sqlite:{}/tollgate.db\"\nstore.durability = \"{value}\"\nlimits.url = \"memory:\"\n",
            folder.display()
        );
        Self::start(program, upstream, folder, durability.name(), &lines, None)
    }

    pub fn on_servers(program: &Path, upstream: &Upstream, folder: &Path) -> Done<Self> {
        let stores = Stores::start();
        // All processes share a few cores, and a refusal because of one slow reply would end the run.
        let folder = folder.join("shared");
        let lines = format!(
            "store.url = \"{}\"\nstore.deadline_ms = 10000\nstore.spool = \"{}\"\nlimits.url = \"{}\"\nlimits.deadline_ms = 10000\n",
            stores.database,
            folder.join("spool").display(),
            stores.redis_url()
        );
        Self::start(program, upstream, folder, SHARED, &lines, Some(stores))
    }

    /// Gateways that share their stores, with the default settings.
    pub fn fleet(
        program: &Path,
        upstream: &Upstream,
        folder: &Path,
        gateways: usize,
    ) -> Done<Vec<Self>> {
        let stores = Stores::start();
        let mut fleet = Vec::<Self>::new();
        for number in 0..gateways {
            let folder = folder.join(format!("fleet-{number}"));
            let lines = format!(
                "store.url = \"{}\"\nstore.spool = \"{}\"\nlimits.url = \"{}\"\n",
                stores.database,
                folder.join("spool").display(),
                stores.redis_url()
            );
            let mut gateway = Self::launch(program, upstream, folder, SHARED, &lines)?;
            match fleet.first() {
                Some(first) => gateway.target.callers.clone_from(&first.target.callers),
                None => gateway.create_accounts()?,
            }
            fleet.push(gateway);
        }
        // The last one is dropped last.
        if let Some(last) = fleet.last_mut() {
            last.stores = Some(stores);
        }
        Ok(fleet)
    }

    fn start(
        program: &Path,
        upstream: &Upstream,
        folder: PathBuf,
        name: &'static str,
        lines: &str,
        stores: Option<Stores>,
    ) -> Done<Self> {
        let mut tollgate = Self::launch(program, upstream, folder, name, lines)?;
        tollgate.stores = stores;
        tollgate.create_accounts()?;
        Ok(tollgate)
    }

    fn launch(
        program: &Path,
        upstream: &Upstream,
        folder: PathBuf,
        name: &'static str,
        lines: &str,
    ) -> Done<Self> {
        fs::create_dir(&folder)?;
        let [public, operator] = [free_port()?, free_port()?];
        let configuration = format!(
            "server.listen = \"127.0.0.1:{public}\"\noperator.listen = \"127.0.0.1:{operator}\"\n{lines}\
             limits.rpm = 100000000\nlimits.tpm = 4000000000\nlog.level = \"warn\"\n\
             deployments = [{{ model = \"*\", provider = \"upstream\", upstream_model = \"model\" }}]\n\
             [providers.upstream]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:{}/v1\"\n",
            upstream.port
        );
        fs::write(folder.join("tollgate.toml"), configuration)?;
        let target = Target {
            port: public,
            api: Api::Chat,
            path: "/v1/chat/completions".into(),
            // A model that gets the caller's messages unchanged, without built-in tools or an identity prompt.
            model: "svc-native-fast".into(),
            callers: Vec::new(),
        };
        let mut tollgate = Self {
            name,
            program: program.to_owned(),
            folder,
            operator,
            target,
            process: None,
            stores: None,
        };
        tollgate.restart()?;
        Ok(tollgate)
    }

    fn create_accounts(&mut self) -> Done {
        for number in 0..ACCOUNTS {
            let key = self.create_key(number)?;
            let caller = format!("authorization: Bearer {key}\r\n");
            self.target.callers.push(caller);
        }
        Ok(())
    }

    pub fn operator_port(&self) -> u16 {
        self.operator
    }

    fn create_key(&self, number: usize) -> Done<String> {
        let email = format!("bench{number}@example.com");
        let account = json!({ "email": email, "track": "business", "tier": "flex" });
        let account = self.operate("accounts", Some(&account))?;
        let account = account["id"].as_str().ok_or("an account without an ID")?;
        let grant = json!({ "amount": "100000" });
        self.operate(&format!("accounts/{account}/grants"), Some(&grant))?;
        let key = json!({ "name": "bench" });
        let key = self.operate(&format!("accounts/{account}/keys"), Some(&key))?;
        let key = key["key"].as_str().ok_or("a key that is not shown")?;
        Ok(key.to_owned())
    }

    fn operate(&self, path: &str, body: Option<&Value>) -> Done<Value> {
        let path = format!("/operator/{path}");
        let answer = plain_http::ask(self.operator, &path, Some(TOKEN), body)?;
        if !(200..300).contains(&answer.status) {
            let words = String::from_utf8_lossy(&answer.body);
            return Err(format!("{path} answered {}: {words}", answer.status).into());
        }
        Ok(serde_json::from_slice(&answer.body)?)
    }
}

impl Contestant for Tollgate {
    fn name(&self) -> &'static str {
        self.name
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn messages(&self) -> Option<Target> {
        Some(Target {
            api: Api::Messages,
            path: "/v1/messages".into(),
            ..self.target.clone()
        })
    }

    fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    fn stores(&self) -> Vec<u32> {
        let stores = self.stores.as_ref();
        stores
            .and_then(|stores| stores.pids().ok())
            .unwrap_or_default()
    }

    fn restart(&mut self) -> Done<Duration> {
        self.process = None;
        let mut program = Command::new(&self.program);
        program.args(["serve", "--config"]);
        program.arg(self.folder.join("tollgate.toml"));
        program.env("TOLLGATE_OPERATOR_TOKEN", TOKEN);
        let started = Instant::now();
        let log = self.folder.join("log");
        let mut process = Process::start(&program, &log)?;
        if let Err(failure) = process.wait_until_ready(self.target.port, "/health") {
            let said = fs::read_to_string(log).unwrap_or_default();
            return Err(format!("{}: {failure}\n{said}", self.name).into());
        }
        self.process = Some(process);
        Ok(started.elapsed())
    }

    fn check(&self, answers: u64) -> Done {
        let audit = self.operate("audit", Some(&json!({})))?;
        if audit["ok"] != true {
            return Err(format!("{}: the books do not add up: {audit}", self.name).into());
        }
        let analytics = self.operate("analytics", None)?;
        let charged = analytics["total"]["charged_requests"].as_u64();
        if charged != Some(answers) {
            let charged = charged.unwrap_or_default();
            return Err(format!("{}: {answers} answers and {charged} charges", self.name).into());
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        size_on_disk(&self.program)
    }

    fn version(&self) -> String {
        let said = Command::new(&self.program).arg("--version").output();
        let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        said.unwrap_or_default().trim().to_owned()
    }
}
