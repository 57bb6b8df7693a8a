//! `tollgate check`: checks a configuration and everything it names, without changing anything.

use std::path::Path;

use super::check_changes;
use crate::{
    backoffice::{self, mail::Mail, oidc::Issuer},
    config::{self, Config, LimiterStore, StoreLocation},
    conversations,
    ledger::{self, spool},
    tools::Toolbox,
    upstream::deployments,
};

/// Reports on the file, the stores, the mail server, the issuer, the certificate, each provider, each alias and each data
/// source of the tools, one line each. Fails if anything is wrong.
pub(crate) async fn run(file: &Path) -> Result<(), String> {
    let config = Config::load(file).map_err(|error| error.to_string())?;
    println!("ok    {}", file.display());
    let mut wrong = 0_usize;
    let mut report = |what: &str, result: Result<String, String>| match result {
        Ok(detail) => println!("ok    {what}: {detail}"),
        Err(reason) => {
            wrong += 1;
            println!("wrong {what}: {reason}");
        }
    };
    let (config, changes) = check_changes::applied(config).await;
    if let Some(changes) = changes {
        report("changes of the console", changes);
    }
    match &config.store.location {
        StoreLocation::File(path) => {
            report("store", ledger::probe(path));
            report("responses", conversations::probe(path));
            report("portal", backoffice::probe(path));
        }
        StoreLocation::Postgres { address, .. } => {
            report("store", ledger::probe_database(address).await);
        }
    }
    report("spool", spool::probe(&config.store.spool));
    if let LimiterStore::Redis { address, .. } = &config.limiter_store {
        report("limits", address.probe().await);
    }
    if let Some(mail) = &config.mail {
        report("mail", probe_mail(mail).await);
        let url = config.server.public_url.as_deref();
        let unset = "the listener's own address; set `server.public_url` where readers use another";
        report("links in emails", Ok(url.unwrap_or(unset).to_owned()));
    }
    if let Some(oidc) = &config.portal.oidc {
        report("portal.oidc", probe_issuer(oidc).await);
    }
    if let Some(tls) = &config.server.tls {
        report("certificate", crate::server::probe_certificate(tls));
    }
    if let Some(weights) = &config.weights {
        report("router weights", Ok(weights.scorer.version().to_owned()));
    }
    match deployments::providers(&config) {
        Err(error) => report("providers", Err(error)),
        Ok(providers) => {
            for name in config.providers.keys() {
                if let Some(provider) = providers.get(name) {
                    report(&format!("provider `{name}`"), provider.probe().await);
                }
            }
        }
    }
    for note in check_changes::outdated(&config) {
        println!("note  {note}");
    }
    let unserved = config.unserved_models();
    if !unserved.is_empty() {
        let models = unserved.join(", ");
        println!("note  models without a deployment are not listed and return 404: {models}");
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
        report(&format!("alias `{alias}`"), Ok(detail));
    }
    match Toolbox::new(&config.tools) {
        Err(error) => report("tools", Err(error)),
        Ok(toolbox) => {
            for (source, result) in toolbox.probe().await {
                report(&source, result);
            }
        }
    }
    match wrong {
        0 => Ok(()),
        1 => Err("one thing is wrong".into()),
        count => Err(format!("{count} things are wrong")),
    }
}

async fn probe_issuer(oidc: &config::Oidc) -> Result<String, String> {
    Issuer::new(oidc)?.probe().await
}

async fn probe_mail(mail: &config::Mail) -> Result<String, String> {
    Mail::new(mail)?.probe().await
}
