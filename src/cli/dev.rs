//! `tollgate dev`: everything on one machine, ready to be tried.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use super::serve::{StopSignals, until_stopped};
use crate::{
    auth::{ApiKey, Secret},
    catalog::{Catalog, Tier, Track},
    config::{
        Config, Deployment, Durability, Log, LogFormat, Minute, Operator, Patience, Provider,
        Routing, Server, Store, StorePlace, Tools,
    },
    ledger::{Ledger, LedgerError, NewAccount, NewGrant},
    limits::Ceilings,
    money::NanoUsd,
    server::{self, Running, StartError},
    telemetry,
};

const DEMO_EMAIL: &str = "demo@tollgate.local";
const DEMO_CREDIT: i64 = 100_000_000_000;

#[derive(Args)]
pub struct Options {
    /// The port of the public API; 0 picks a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// The port of the operator API; 0 picks a free one
    #[arg(long, default_value_t = 9090)]
    operator_port: u16,
    /// Where the database and dev.env are kept
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,
}

pub async fn run(options: Options) -> Result<(), String> {
    let env_file = options.data.join("dev.env");
    let before = read_env(&env_file);
    let token = before
        .get("TOLLGATE_OPERATOR_TOKEN")
        .filter(|token| token.len() >= 16);
    let token = token.map_or_else(Secret::generate, |token| Secret::new(token.as_str()));
    let log = Log {
        format: LogFormat::Pretty,
        ..Log::default()
    };
    telemetry::start(&log);
    let signals = StopSignals::listen()?;
    let config = config(&options, token.clone(), log);
    let running = server::start(config)
        .await
        .map_err(|error| explain(&error))?;
    let known = before
        .get("OPENAI_API_KEY")
        .and_then(|key| ApiKey::parse(key));
    let key = demo_key(&running.gateway.ledger, known)
        .await
        .map_err(|error| format!("the demo account could not be made: {error}"))?;
    write_env(&env_file, &running, &key, &token)
        .map_err(|error| format!("{} cannot be written: {error}", env_file.display()))?;
    println!("{}", welcome(&running, &key, &env_file));
    until_stopped(running, signals).await
}

fn config(options: &Options, token: Secret, log: Log) -> Config {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Config {
        server: Server {
            listen: local(options.port),
            tls: None,
            public_url: None,
            max_body_bytes: 32 << 20,
            shutdown_grace: Duration::from_secs(10),
            patience: Patience::default(),
        },
        operator: Operator {
            listen: local(options.operator_port),
            token,
        },
        store: Store {
            place: StorePlace::File(options.data.join("tollgate.db")),
            durability: Durability::Process,
        },
        limits: Ceilings {
            requests: 60,
            tokens: 100_000,
        },
        minute: Minute::Memory,
        routing: Routing::default(),
        weights: None,
        tools: Tools::default(),
        max_overdraft: NanoUsd::new(5_000_000_000),
        providers: BTreeMap::from([("simulator".into(), Provider::Simulator)]),
        deployments: vec![Deployment {
            model: "*".into(),
            provider: "simulator".into(),
            upstream_model: None,
            weight: 1,
            priority: 0,
            timeouts: None,
        }],
        catalog: Catalog::built_in(),
        catalog_file: None,
        log,
    }
}

/// The key of an earlier start if it still works, else a new one for the demo account.
async fn demo_key(ledger: &Ledger, known: Option<ApiKey>) -> Result<ApiKey, LedgerError> {
    if let Some(key) = known {
        let caller = ledger.look(key.digest()).await?;
        if caller.is_some_and(|caller| !caller.account_closed) {
            return Ok(key);
        }
    }
    let demo = |account: &crate::ledger::Account| account.email == DEMO_EMAIL && !account.closed;
    let account_id = match ledger.accounts().await?.into_iter().find(demo) {
        Some(account) => account.id,
        None => demo_account(ledger).await?,
    };
    let (_, key) = ledger.create_key(&account_id, "dev".into()).await?;
    Ok(key)
}

async fn demo_account(ledger: &Ledger) -> Result<String, LedgerError> {
    let account = NewAccount {
        email: DEMO_EMAIL.into(),
        name: Some("Demo".into()),
        track: Track::Business,
        tier: Tier::Flex,
    };
    let account = ledger.create_account(account).await?;
    let credit = NewGrant {
        amount: NanoUsd::new(DEMO_CREDIT),
        expires_at: None,
        reason: Some("for trying things out".into()),
        reference: None,
    };
    ledger.add_grant(&account.id, credit).await?;
    Ok(account.id)
}

fn read_env(file: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Writes the file in one piece and for this user's eyes only: it holds a key.
fn write_env(file: &Path, running: &Running, key: &ApiKey, token: &Secret) -> std::io::Result<()> {
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
    writeln!(written, "OPENAI_API_KEY={}", key.reveal())?;
    writeln!(written, "TOLLGATE_OPERATOR_URL=http://{}", running.operator)?;
    writeln!(written, "TOLLGATE_OPERATOR_TOKEN={}", token.reveal())?;
    written.sync_all()?;
    std::fs::rename(draft, file)
}

fn explain(error: &StartError) -> String {
    match error {
        StartError::Listen { .. } => {
            format!(
                "{error}. Choose other ports with --port and --operator-port; 0 picks a free one."
            )
        }
        other => other.to_string(),
    }
}

fn welcome(running: &Running, key: &ApiKey, env_file: &Path) -> String {
    let (origin, operator, key) = (&running.origin, running.operator, key.reveal());
    let env_file = env_file.display();
    format!(
        r#"
Tollgate is ready. A simulated model answers, so nothing costs money.

  API        {origin}/v1
  Key        {key}
  Operator   http://{operator}

Try it:

  curl {origin}/v1/chat/completions \
    -H "Authorization: Bearer {key}" \
    -d '{{"model": "svc-native-fast", "messages": [{{"role": "user", "content": "Hello!"}}]}}'

For the official clients and the operator commands, load the same settings:

  set -a; . {env_file}; set +a

Ctrl-C stops it. The account and the key are kept for the next start."#
    )
}
