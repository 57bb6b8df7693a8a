//! `tollgate dev`: a gateway with a simulated model and a demo account, for trying it out on one machine.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use serde_json::{Value, json};

use super::{
    demo::{DEMO_EMAIL, Demo},
    logging,
    output::OutputOption,
    serve::{StopSignals, until_stopped},
};
use crate::{
    base::{
        durability::Durability, guessable::is_guessable, keys::Secret, money::NanoUsd,
        rate::Ceilings,
    },
    catalog::{Aliases, Catalog},
    config::{
        Alerts, BodyMemoryLimits, ClientTimeouts, Config, Deployment, LimiterStore, Log, LogFormat,
        MAX_ABANDONED, Offer, Operator, Overload, PaymentProvider, Payments, Portal, Provider,
        RefusalLimits, Retries, Routing, Server, Store, StoreLocation, Tools,
        changes::{Base, Revision},
        telemetry,
    },
    ledger::MAX_KEYS,
    server::{self, Running, StartError},
    telemetry::Settings,
};

/// The names of models that coding agents ask for by default: Claude Code, then Codex and goose.
const AGENTS_NAMES: [&str; 5] = ["claude-*", "gpt-*", "codex-*", "o3*", "o4*"];
const AGENTS_MODEL: &str = "svc-max-coding";

#[derive(Args)]
pub(crate) struct Options {
    /// The port of the public API; 0 picks a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// The port of the operator API; 0 picks a free one
    #[arg(long, default_value_t = 9090)]
    operator_port: u16,
    /// The folder of the database and of dev.env
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,
    #[command(flatten)]
    output: OutputOption,
}

pub(crate) async fn run(options: Options) -> Result<(), String> {
    let env_file = options.data.join("dev.env");
    let before = read_env(&env_file);
    let token = before
        .get("TOLLGATE_OPERATOR_TOKEN")
        .filter(|token| !is_guessable(token));
    let token = token.map_or_else(Secret::generate, |token| Secret::new(token.as_str()));
    let log = Log {
        format: LogFormat::Pretty,
        ..Log::default()
    };
    logging::start(&log);
    let signals = StopSignals::listen()?;
    let (telemetry, mistakes) = telemetry::telemetry(&std::env::vars().collect());
    if let Some(mistake) = mistakes.first() {
        return Err(format!("{} {}", mistake.name, mistake.message));
    }
    let config = config(&options, token.clone(), log, telemetry);
    let running = server::start(config)
        .await
        .map_err(|error| explain(&error, &options.data))?;
    let demo = Demo::prepare(&running.gateway, &before)
        .await
        .map_err(|error| format!("the demo account could not be created: {error}"))?;
    write_env(&env_file, &running, &demo, &token)
        .map_err(|error| format!("{} cannot be written: {error}", env_file.display()))?;
    let text = || welcome(&running, &demo, &env_file);
    let json = as_json(&running, &demo, &env_file);
    options.output.print(text, &json)?;
    until_stopped(running, signals).await
}

fn config(options: &Options, token: Secret, log: Log, telemetry: Option<Settings>) -> Config {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let base = Base::of_text("tollgate dev", &file(), &token);
    Config {
        server: Server {
            listen: local(options.port),
            tls: None,
            public_url: None,
            trusted_proxies: Vec::new(),
            max_body_bytes: 32 << 20,
            max_connections: None,
            body_memory: BodyMemoryLimits::of_this_machine(32 << 20),
            shutdown_grace: Duration::from_secs(10),
            client_timeouts: ClientTimeouts::default(),
        },
        operator: Operator {
            listen: local(options.operator_port),
            token,
        },
        store: Store {
            location: StoreLocation::File(options.data.join("tollgate.db")),
            durability: Durability::Process,
            spool: options.data.join("spool"),
            keep_months: None,
        },
        limits: Ceilings {
            requests: 60,
            tokens: 100_000,
        },
        limiter_store: LimiterStore::Memory,
        overload: Overload::default(),
        retries: Retries::default(),
        max_abandoned: MAX_ABANDONED,
        refusals: RefusalLimits::default(),
        max_keys: MAX_KEYS,
        routing: Routing::default(),
        weights: None,
        tools: Tools::default(),
        mail: None,
        payments: Some(Payments {
            provider: PaymentProvider::Test,
            offer: Offer::default(),
        }),
        alerts: Alerts::default(),
        portal: Portal {
            sign_up_open: true,
            ..Portal::default()
        },
        max_overdraft: NanoUsd::new(5_000_000_000),
        providers: BTreeMap::from([("simulator".into(), Provider::Simulator)]),
        deployments: vec![Deployment {
            model: "*".into(),
            provider: "simulator".into(),
            upstream_model: None,
            weight: 1,
            priority: 0,
            timeouts: None,
            cost: None,
        }],
        catalog: catalog(),
        catalog_file: None,
        log,
        telemetry: telemetry.map(Box::new),
        base: Arc::new(base),
        revision: Revision::default(),
    }
}

/// Providers, deployments and aliases of [`config`] as a file, from which changes of the console begin.
fn file() -> String {
    let names = AGENTS_NAMES.map(|name| format!("{name:?} = {AGENTS_MODEL:?}\n"));
    format!(
        "[providers.simulator]\nkind = \"simulator\"\n\
         [[deployments]]\nmodel = \"*\"\nprovider = \"simulator\"\n\
         [models.aliases]\n{}",
        names.concat()
    )
}

/// The built-in catalog, with the names that coding agents ask for unless they are told another.
fn catalog() -> Catalog {
    let catalog = Catalog::built_in();
    let Some(model) = catalog.find(AGENTS_MODEL).cloned() else {
        return catalog;
    };
    let names = AGENTS_NAMES.map(|name| (name.to_owned(), model.clone()));
    catalog.with_aliases(Aliases::new(names))
}

fn read_env(file: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Replaces the file atomically, readable by this user only, because it contains a key and a password.
fn write_env(file: &Path, running: &Running, demo: &Demo, token: &Secret) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let draft = file.with_extension("env.new");
    let mut options = std::fs::OpenOptions::new();
    let mut written = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    writeln!(written, "OPENAI_BASE_URL={}/v1", running.origin)?;
    writeln!(written, "OPENAI_API_KEY={}", demo.key.reveal())?;
    writeln!(written, "TOLLGATE_OPERATOR_URL=http://{}", running.operator)?;
    writeln!(written, "TOLLGATE_OPERATOR_TOKEN={}", token.reveal())?;
    writeln!(written, "TOLLGATE_PORTAL_URL={}/portal", running.origin)?;
    writeln!(written, "TOLLGATE_PORTAL_EMAIL={DEMO_EMAIL}")?;
    writeln!(written, "TOLLGATE_PORTAL_PASSWORD={}", demo.password)?;
    written.sync_all()?;
    std::fs::rename(draft, file)
}

/// The message of a start error, with what can be done about it here.
fn explain(error: &StartError, data: &Path) -> String {
    match error {
        StartError::Listen { .. } => {
            format!(
                "{error}. Choose other ports with --port and --operator-port; 0 picks a free one."
            )
        }
        StartError::UnreadableChanges { reason } => {
            let file = data.join("tollgate.portal.db");
            let file = file.display();
            format!(
                "{reason}\nMove {file} away, with its -wal and -shm files, to begin with a new one. It has the people who \
                 sign in, and changes of the console; accounts, keys and credit are in tollgate.db and stay."
            )
        }
        other => other.to_string(),
    }
}

fn as_json(running: &Running, demo: &Demo, env_file: &Path) -> Value {
    let origin = &running.origin;
    json!({
        "api": format!("{origin}/v1"), "key": demo.key.reveal(), "portal": format!("{origin}/portal"),
        "email": DEMO_EMAIL, "password": demo.password,
        "operator": format!("http://{}", running.operator), "env_file": env_file,
    })
}

fn welcome(running: &Running, demo: &Demo, env_file: &Path) -> String {
    let (origin, operator) = (&running.origin, running.operator);
    let (key, password) = (demo.key.reveal(), &demo.password);
    let env_file = env_file.display();
    format!(
        r#"
Tollgate is ready. A simulated model answers, so nothing costs money.

  API        {origin}/v1
  Key        {key}
  Portal     {origin}/portal
  Sign in    {DEMO_EMAIL} with {password}
  Operator   http://{operator}

Try it:

  curl {origin}/v1/chat/completions \
    -H "Authorization: Bearer {key}" \
    -d '{{"model": "svc-native-fast", "messages": [{{"role": "user", "content": "Hello!"}}]}}'

For the official clients and the operator commands, load the same settings:

  set -a; . {env_file}; set +a

Ctrl-C stops it. The account, its key and its password are kept for the next start."#
    )
}
