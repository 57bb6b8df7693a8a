//! `tollgate check`: checks a configuration and everything it names, without changing anything.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{
    check_changes,
    check_listeners::{self, Listener},
    output::OutputOption,
};
use crate::{
    backoffice::{self, mail::Mail, oidc::Issuer},
    config::{self, Config, LimiterStore, StoreLocation},
    conversations,
    ledger::{self, spool},
    net::offload::Offload,
    tools::Toolbox,
    upstream::deployments,
};

#[derive(Args)]
pub(crate) struct Options {
    /// The configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check only what this machine knows: no database, mail server, provider or data source is called
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    output: OutputOption,
}

/// The lines of the report. As text they are printed as they come, because some checks take seconds.
struct Findings {
    output: OutputOption,
    all: Vec<serde_json::Value>,
    wrong: usize,
}

impl Findings {
    fn add(&mut self, what: &str, result: Result<String, String>) -> Result<(), String> {
        let (state, detail) = match result {
            Ok(detail) => ("ok", detail),
            Err(reason) => {
                self.wrong += 1;
                ("wrong", reason)
            }
        };
        self.line(state, what, &detail)
    }

    fn note(&mut self, what: &str, detail: &str) -> Result<(), String> {
        self.line("note", what, detail)
    }

    fn line(&mut self, state: &str, what: &str, detail: &str) -> Result<(), String> {
        let finding = json!({ "state": state, "what": what, "detail": detail });
        self.all.push(finding);
        let separator = if what.is_empty() || detail.is_empty() {
            ""
        } else {
            ": "
        };
        self.output
            .remark(&format!("{state:5} {what}{separator}{detail}"))
    }

    fn finish(self) -> Result<(), String> {
        if self.output.json {
            let report = json!({ "ok": self.wrong == 0, "checks": self.all });
            self.output.print(String::new, &report)?;
        }
        match self.wrong {
            0 => Ok(()),
            1 => Err("one thing is wrong".into()),
            count => Err(format!("{count} things are wrong")),
        }
    }
}

/// Reports on the file, the stores, the mail server, the issuer, the certificate, each provider, each alias and each data
/// source of the tools, one line each. Fails if anything is wrong.
pub(crate) async fn run(options: &Options) -> Result<(), String> {
    let mut findings = Findings {
        output: options.output,
        all: Vec::new(),
        wrong: 0,
    };
    let file = options.config.display().to_string();
    let mut config = match Config::load(&options.config) {
        Ok(config) => config,
        Err(error) => {
            for mistake in error.mistakes() {
                findings.add(&file, Err(mistake.to_string()))?;
            }
            return findings.finish();
        }
    };
    findings.add(&file, Ok(String::new()))?;
    if !options.offline {
        let (with_changes, result) = check_changes::applied(config).await;
        config = with_changes;
        if let Some(result) = result {
            findings.add("changes of the console", result)?;
        }
    }
    local(&config, &mut findings).await?;
    if !options.offline {
        remote(&config, &mut findings).await?;
    }
    models(&config, &mut findings)?;
    if !options.offline {
        tools(&config, &mut findings).await?;
    }
    findings.finish()
}

/// The ports, files and folders of this machine.
async fn local(config: &Config, findings: &mut Findings) -> Result<(), String> {
    let mut in_use = false;
    if let StoreLocation::File(path) = &config.store.location {
        in_use = ledger::is_in_use(path);
        findings.add("store", ledger::probe(path))?;
        findings.add("responses", conversations::probe(path))?;
        findings.add("portal", backoffice::probe(path))?;
    }
    findings.add("spool", spool::probe(&config.store.spool))?;
    let [public, operator] = check_listeners::probe(config, in_use).await;
    for (what, listener) in [("server.listen", public), ("operator.listen", operator)] {
        match listener {
            Listener::Free(detail) => findings.add(what, Ok(detail))?,
            Listener::Running(detail) => findings.note(what, &detail)?,
            Listener::Wrong(reason) => findings.add(what, Err(reason))?,
        }
    }
    if let Some(tls) = &config.server.tls {
        findings.add("certificate", crate::server::probe_certificate(tls))?;
    }
    if let Some(weights) = &config.weights {
        findings.add("router weights", Ok(weights.scorer.version().to_owned()))?;
    }
    Ok(())
}

/// What is reached over the network.
async fn remote(config: &Config, findings: &mut Findings) -> Result<(), String> {
    if let StoreLocation::Postgres { address, .. } = &config.store.location {
        findings.add("store", ledger::probe_database(address).await)?;
    }
    if let LimiterStore::Redis { address, .. } = &config.limiter_store {
        findings.add("limits", address.probe().await)?;
    }
    if let Some(mail) = &config.mail {
        findings.add("mail", probe_mail(mail).await)?;
        let url = config.server.public_url.as_deref();
        let unset = "the listener's own address; set `server.public_url` where readers use another";
        findings.add("links in emails", Ok(url.unwrap_or(unset).to_owned()))?;
    }
    if let Some(oidc) = &config.portal.oidc {
        findings.add("portal.oidc", probe_issuer(oidc).await)?;
    }
    match deployments::providers(config, &Offload::default()) {
        Err(error) => findings.add("providers", Err(error))?,
        Ok(providers) => {
            for name in config.providers.keys() {
                if let Some(provider) = providers.get(name) {
                    findings.add(&format!("provider `{name}`"), provider.probe().await)?;
                }
            }
        }
    }
    Ok(())
}

/// Changes that the file has overtaken, models without a deployment, and aliases.
fn models(config: &Config, findings: &mut Findings) -> Result<(), String> {
    for note in check_changes::outdated(config) {
        findings.note("", &note)?;
    }
    let unserved = config.unserved_models();
    if !unserved.is_empty() {
        let models = unserved.join(", ");
        let detail = format!("models without a deployment are not listed and return 404: {models}");
        findings.note("", &detail)?;
    }
    for (alias, model) in config.catalog.written_aliases() {
        let id = &model.id;
        let detail = if config.catalog.find(&alias).is_some() {
            "never applies, because a model of the catalog has this ID".to_owned()
        } else if unserved.contains(&id.as_str()) {
            format!("`{id}`, which has no deployment: requests get 404")
        } else {
            format!("`{id}`")
        };
        findings.add(&format!("alias `{alias}`"), Ok(detail))?;
    }
    Ok(())
}

async fn tools(config: &Config, findings: &mut Findings) -> Result<(), String> {
    match Toolbox::new(&config.tools) {
        Err(error) => findings.add("tools", Err(error)),
        Ok(toolbox) => {
            for (source, result) in toolbox.probe().await {
                findings.add(&source, result)?;
            }
            Ok(())
        }
    }
}

async fn probe_issuer(oidc: &config::Oidc) -> Result<String, String> {
    Issuer::new(oidc)?.probe().await
}

async fn probe_mail(mail: &config::Mail) -> Result<String, String> {
    Mail::new(mail)?.probe().await
}
