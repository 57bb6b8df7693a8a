//! Turns the parsed TOML document into a [`Config`], section by section.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use super::{
    ClientTimeouts, Config, Log, LogFormat, Operator, Portal, RequireSecondFactor, Server, Store,
    StoreLocation, TlsFiles,
    alerts::alerts,
    aliases::aliases,
    body_memory::body_memory,
    changes::{Applied, Base, Revision},
    files::{read_text, readable_file},
    limits_section::limits,
    mail::mail,
    oidc::oidc,
    overload::overload,
    own_models,
    payments::payments,
    portal_money::{seller, starter_credit},
    proxies::trusted_proxies,
    retries::retries,
    telemetry::telemetry,
    tools::tools,
    upstreams::{deployment, provider, routing},
    values::{Environment, address, http_url, list, seconds, secret, store_url},
};
use crate::{
    base::{
        checked_toml::{self, Mistake, Node, Section, Value, as_text},
        durability::Durability,
        guessable::is_guessable,
        keys::Secret,
        money::NanoUsd,
    },
    catalog::{Catalog, Plan, Tier, Track},
    db::postgres,
    ledger,
};

pub(crate) fn config(written: Applied, environment: &Environment) -> Result<Config, Vec<Mistake>> {
    let Applied {
        document,
        own_models: own,
        models,
        removed_models,
    } = written;
    checked_toml::read(document, |root| {
        let server = server(root.section("server"));
        let operator = operator(root.section("operator"), server.listen, environment);
        let store = store(root.section("store"), environment);
        let limits = limits(root.section("limits"), &store, environment);
        let is_shared = matches!(store.location, StoreLocation::Postgres { .. });
        let overload = overload(root.section("overload"), is_shared);
        let retries = retries(root.section("retries"));
        let (routing, weights) = routing(root.section("routing"));
        let max_overdraft = max_overdraft(root.section("credit"));
        let log = log(root.section("log"));
        let (telemetry, mistakes) = telemetry(environment);
        for mistake in mistakes {
            root.mistake(&mistake.name, mistake.message);
        }
        let tools = tools(root.section("tools"), environment);
        let portal = portal(root.section("portal"), environment);
        let has_mail = root.contains("mail");
        let mail_section = root.section("mail");
        let mail = has_mail.then(|| mail(mail_section, environment)).flatten();
        let has_payments = root.contains("payments");
        let payments_section = root.section("payments");
        let payments = has_payments.then(|| payments(payments_section, environment));
        let alerts = alerts(root.section("alerts"), has_mail, environment);
        let providers: BTreeMap<_, _> = root
            .named_sections("providers")
            .into_iter()
            .map(|(name, section)| (name, provider(section, environment)))
            .collect();
        if providers.is_empty() {
            root.mistake(
                "providers",
                "is missing; expected at least one `[providers.NAME]`",
            );
        }
        let (catalog, catalog_file) = catalog(root.section("catalog"));
        let catalog = changed_catalog(root, catalog, own, &BTreeSet::new());
        let catalog = changed_catalog(root, catalog, models, &removed_models);
        let aliases = aliases(root.section("models"), &catalog);
        let deployments: Vec<_> = root
            .list_of_sections("deployments")
            .into_iter()
            .map(|section| deployment(section, &providers, &catalog))
            .collect();
        if deployments.is_empty() {
            root.mistake(
                "deployments",
                "is missing; expected at least one `[[deployments]]`",
            );
        }
        Config {
            server,
            operator,
            store,
            limits: limits.ceilings,
            limiter_store: limits.store,
            overload,
            retries,
            max_abandoned: limits.max_abandoned,
            refusals: limits.refusals,
            max_keys: limits.max_keys,
            max_overdraft,
            providers,
            deployments,
            routing,
            weights,
            tools,
            portal,
            mail,
            payments: payments.flatten(),
            alerts,
            catalog: catalog.with_aliases(aliases),
            catalog_file,
            log,
            telemetry: telemetry.map(Box::new),
            base: Arc::new(Base::default()),
            revision: Revision::default(),
        }
    })
}

/// The section `store` of a document, whatever else is in it.
pub(crate) fn store_alone(
    mut document: Node,
    environment: &Environment,
) -> Result<Store, Vec<Mistake>> {
    if let Value::Table(entries) = &mut document.value {
        entries.retain(|key, _| key == "store");
    }
    checked_toml::read(document, |root| store(root.section("store"), environment))
}

fn server(mut section: Section) -> Server {
    let listen = address(&mut section, "127.0.0.1:8080");
    let has_tls = section.contains("tls");
    let mut tls = section.section("tls");
    let mut file = |key: &str| {
        has_tls.then(|| tls.required(key, "the path of a readable PEM file", readable_file))?
    };
    let files = file("cert")
        .zip(file("key"))
        .map(|(cert, key)| TlsFiles { cert, key });
    tls.finish();
    let max_body_bytes = section
        .optional(
            "max_body_bytes",
            "a number of bytes from 1024 to 1073741824",
            |value| {
                let bytes = checked_toml::as_integer(value)?;
                (1_024..=1 << 30).contains(&bytes).then_some(bytes)
            },
        )
        .unwrap_or(32 << 20);
    let server = Server {
        listen,
        tls: files,
        public_url: section.optional(
            "public_url",
            "a URL, e.g. `https://llm.example.com`",
            http_url,
        ),
        trusted_proxies: trusted_proxies(&mut section),
        max_body_bytes,
        body_memory: body_memory(&mut section, max_body_bytes),
        max_connections: section.optional(
            "max_connections",
            "a number of connections from 1 to 10000000",
            |value| {
                let connections: usize = checked_toml::as_integer(value)?;
                (1..=10_000_000)
                    .contains(&connections)
                    .then_some(connections)
            },
        ),
        shutdown_grace: seconds(&mut section, "shutdown_grace_seconds", 0..=3_600)
            .unwrap_or(Duration::from_secs(30)),
        client_timeouts: client_timeouts(&mut section),
    };
    section.finish();
    server
}

fn client_timeouts(section: &mut Section) -> ClientTimeouts {
    let default = ClientTimeouts::default();
    ClientTimeouts {
        head: seconds(section, "head_seconds", 1..=3_600).unwrap_or(default.head),
        stall: seconds(section, "stall_seconds", 1..=3_600).unwrap_or(default.stall),
    }
}

fn operator(mut section: Section, public: SocketAddr, environment: &Environment) -> Operator {
    let listen = address(&mut section, "127.0.0.1:9090");
    if overlap(public, listen) {
        section.mistake(
            "listen",
            &format!("is {listen}, where `server.listen` takes requests; choose another port"),
        );
    }
    // Read where changes of the console are checked.
    let _ = list(
        &mut section,
        "provider_secrets",
        "names of variables and paths of files, e.g. `[\"UPSTREAM_*\"]`",
        |name| Some(()).filter(|()| !name.is_empty() && name != "*"),
    );
    let key = if section.contains("token_file") {
        "token_file"
    } else {
        "token_env"
    };
    let token = secret(
        &mut section,
        "token",
        Some("TOLLGATE_OPERATOR_TOKEN"),
        environment,
    );
    if token
        .as_ref()
        .is_some_and(|token| is_guessable(token.reveal()))
    {
        section.mistake(
            key,
            "names a token that can be guessed; expected a random one, e.g. of `openssl rand -hex 32`",
        );
    }
    section.finish();
    // A missing token was reported as a mistake, so no gateway starts; the random token is only a placeholder.
    Operator {
        listen,
        token: token.unwrap_or_else(Secret::generate),
    }
}

/// Whether only one of two listeners can have its address. Port 0 is a free one.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    // `::` takes the addresses of IPv4 too.
    let covers = |x: IpAddr, y: IpAddr| x.is_unspecified() && (x.is_ipv6() || y.is_ipv4());
    let [a, b] = [one.ip(), other.ip()];
    let is_same = a == b || covers(a, b) || covers(b, a);
    one.port() == other.port() && one.port() != 0 && is_same
}

fn store(mut section: Section, environment: &Environment) -> Store {
    let expected = "`sqlite:` and a path, e.g. `sqlite:data/tollgate.db`, or `postgres://…`";
    let url = store_url(&mut section, expected, environment);
    let url = url.unwrap_or_else(|| "sqlite:data/tollgate.db".to_owned());
    let deadline = deadline(&mut section);
    let location = match url.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() => Ok(StoreLocation::File(path.into())),
        _ if url.starts_with("postgres") => {
            postgres::Address::parse(&url).map(|address| StoreLocation::Postgres {
                address: Box::new(address),
                deadline: deadline.unwrap_or(ledger::DEADLINE),
            })
        }
        _ => Err(format!("cannot be used: expected {expected}")),
    };
    let location = location.unwrap_or_else(|mistake| {
        section.mistake("url", &mistake);
        StoreLocation::File("data/tollgate.db".into())
    });
    let durability = section.optional("durability", "`power` or `process`", |value| match as_text(
        value,
    )?
    .as_str()
    {
        "power" => Some(Durability::Power),
        "process" => Some(Durability::Process),
        _ => None,
    });
    let folder = "the path of a folder on a local disk, e.g. `data/spool`";
    let spool = section.optional("spool", folder, |value| {
        as_text(value)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    });
    let keep_months = section.optional(
        "keep_months",
        "a number of months from 1 to 1200",
        |value| {
            let months: u32 = checked_toml::as_integer(value)?;
            (1..=1_200).contains(&months).then_some(months)
        },
    );
    section.finish();
    Store {
        keep_months,
        spool: spool.unwrap_or_else(|| location.default_spool()),
        location,
        durability: durability.unwrap_or(Durability::Power),
    }
}

/// `deadline_ms`: how long admission waits for the shared database, or for a reply of Redis.
pub(super) fn deadline(section: &mut Section) -> Option<Duration> {
    let expected = "a number of milliseconds from 5 to 10000";
    section.optional("deadline_ms", expected, |value| {
        let ms: u64 = checked_toml::as_integer(value)?;
        (5..=10_000)
            .contains(&ms)
            .then(|| Duration::from_millis(ms))
    })
}

/// `credit.max_overdraft`; five dollars by default.
fn max_overdraft(mut section: Section) -> NanoUsd {
    let expected = "US dollars as a decimal string, e.g. `\"5.00\"`; `\"0\"` for none";
    let amount = section.optional("max_overdraft", expected, |value| {
        NanoUsd::parse(&as_text(value)?)
    });
    section.finish();
    amount.unwrap_or(NanoUsd::new(5_000_000_000))
}

fn portal(mut section: Section, environment: &Environment) -> Portal {
    let default = Portal::default();
    let enabled = section.flag("enabled").unwrap_or(default.enabled);
    let console = section.flag("console").unwrap_or(default.console);
    let has_oidc = section.contains("oidc");
    let oidc_section = section.section("oidc");
    let oidc = has_oidc.then(|| oidc(oidc_section, environment)).flatten();
    let sign_up = section.optional("sign_up", "`open` or `closed`", |value| {
        match as_text(value)?.as_str() {
            "open" => Some(true),
            "closed" => Some(false),
            _ => None,
        }
    });
    let track = section.optional("sign_up_track", "`personal` or `business`", |value| {
        Track::parse(&as_text(value)?)
    });
    let tier = section.optional("sign_up_tier", "a tier, e.g. `free` or `basic`", |value| {
        Tier::parse(&as_text(value)?)
    });
    let track = track.unwrap_or(default.sign_up_plan.track());
    let plan = Plan::new(track, tier.unwrap_or(default.sign_up_plan.tier()));
    if plan.is_none() {
        section.mistake(
            "sign_up_tier",
            "does not belong to the track: `flex` is the business track's tier, and its only one",
        );
    }
    let starter_credit = starter_credit(&mut section);
    let seller = seller(&mut section);
    let require_second_factor = require_second_factor(&mut section);
    section.finish();
    Portal {
        enabled,
        console,
        oidc,
        require_second_factor,
        sign_up_open: sign_up.unwrap_or(default.sign_up_open),
        sign_up_plan: plan.unwrap_or(default.sign_up_plan),
        starter_credit,
        seller,
    }
}

fn require_second_factor(section: &mut Section) -> RequireSecondFactor {
    let expected = "`none`, `operators` or `everyone`";
    let required = section.optional("require_second_factor", expected, |value| {
        match as_text(value)?.as_str() {
            "none" => Some(RequireSecondFactor::None),
            "operators" => Some(RequireSecondFactor::Operators),
            "everyone" => Some(RequireSecondFactor::Everyone),
            _ => None,
        }
    });
    required.unwrap_or_default()
}

fn log(mut section: Section) -> Log {
    let default = Log::default();
    let format = section.optional("format", "`json` or `pretty`", |value| {
        match as_text(value)?.as_str() {
            "json" => Some(LogFormat::Json),
            "pretty" => Some(LogFormat::Pretty),
            _ => None,
        }
    });
    let level = section.optional(
        "level",
        "e.g. `info` or `tollgate=debug,hyper=warn`",
        |value| {
            let level = as_text(value)?;
            level
                .parse::<tracing_subscriber::filter::Targets>()
                .ok()
                .map(|_| level)
        },
    );
    section.finish();
    Log {
        format: format.unwrap_or(default.format),
        level: level.unwrap_or(default.level),
    }
}

/// The catalog with the models of the file itself, or with those that were changed, added and removed in the console.
fn changed_catalog(
    root: &Section,
    catalog: Catalog,
    models: Option<Node>,
    removed: &BTreeSet<String>,
) -> Catalog {
    let Some(models) = models else {
        return catalog;
    };
    match catalog.changed_by(models, removed) {
        Ok(changed) => changed,
        Err(mistakes) => {
            root.report_all(mistakes);
            catalog
        }
    }
}

/// The built-in catalog, extended or (with `extends = false`) replaced by the configured file.
fn catalog(mut section: Section) -> (Catalog, Option<PathBuf>) {
    let built_in = Catalog::built_in();
    let file = section.optional("file", "the path of a readable file", readable_file);
    let extends = section.flag("extends").unwrap_or(true);
    let read = file.clone().map(|path| {
        let text = read_text(&path).unwrap_or_default();
        let read = checked_toml::parse(&text).and_then(|mut document| {
            own_models::complete(&mut document);
            Catalog::read(document, extends.then_some(&built_in))
        });
        read.map_err(|mistakes| (path, mistakes))
    });
    let catalog = match read {
        None => built_in,
        Some(Ok(catalog)) => catalog,
        Some(Err((path, mistakes))) => {
            for mistake in mistakes {
                section.mistake("file", &format!("({}) {mistake}", path.display()));
            }
            built_in
        }
    };
    section.finish();
    (catalog, file)
}
