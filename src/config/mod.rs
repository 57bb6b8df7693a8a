//! What a person writes → a checked [`Config`]; every mistake reported at once.
//!
//! A `Config` can be used as it stands: addresses are parsed, secrets are read, the catalog is
//! loaded. Secrets come from the environment or from files, never from the configuration itself.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

mod alerts;
mod environment;
mod mail;
mod oidc;
mod payments;
mod proxies;
mod quirks;
mod read;
mod tools;
mod upstreams;
mod values;

pub use alerts::{Alerts, Webhook};
pub use mail::{Mail, mail_server};
pub use oidc::Oidc;
pub use payments::{Offer, PaymentProvider, Payments, Stripe};
pub use quirks::{MaxTokensField, Quirks};
pub use tools::{Chain, Market, Tools};
pub use values::is_safe_url;

use crate::{
    base::{
        checked_toml::Mistake, durability::Durability, keys::Secret, money::NanoUsd, rate::Ceilings,
    },
    catalog::{Catalog, Plan, Prices},
    db::postgres,
    limits,
    routing::Scorer,
};

/// Clients that cut responses short often leave a few calls behind; more than this many at once are unusual.
pub const MAX_ABANDONED: u32 = 100;

#[derive(Debug)]
pub struct Config {
    pub server: Server,
    pub operator: Operator,
    pub store: Store,
    /// The ceilings of whatever has none of its own.
    pub limits: Ceilings,
    pub limiter_store: LimiterStore,
    /// How many calls whose clients have left an account may have and still start another.
    pub max_abandoned: u32,
    /// How far an account may go below zero by calls that cost more than they held.
    pub max_overdraft: NanoUsd,
    pub providers: BTreeMap<String, Provider>,
    pub deployments: Vec<Deployment>,
    pub routing: Routing,
    /// The router weights that stand in for the built-in ones.
    pub weights: Option<OwnWeights>,
    pub tools: Tools,
    pub portal: Portal,
    /// The server that letters go through.
    pub mail: Option<Mail>,
    /// Who takes money for credit.
    pub payments: Option<Payments>,
    pub alerts: Alerts,
    pub catalog: Catalog,
    /// Where the catalog was read from, if not from the program itself.
    pub catalog_file: Option<PathBuf>,
    pub log: Log,
}

#[derive(Debug)]
pub struct Server {
    pub listen: SocketAddr,
    pub tls: Option<TlsFiles>,
    /// Where callers reach this gateway, for the links in errors; by default the listener.
    pub public_url: Option<String>,
    /// Whose word about a client's address is taken.
    pub trusted_proxies: Vec<ipnet::IpNet>,
    pub max_body_bytes: usize,
    /// How long running answers may go on after a request to stop.
    pub shutdown_grace: Duration,
    pub client_timeouts: ClientTimeouts,
}

/// How long a client may take for its part.
#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
    /// From the first byte of a request's head to its last.
    pub head: Duration,
    /// Without taking a byte of the answer that waits for it.
    pub stall: Duration,
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            stall: Duration::from_mins(1),
        }
    }
}

#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug)]
pub struct Operator {
    pub listen: SocketAddr,
    pub token: Secret,
}

/// The pages under `/portal`.
#[derive(Clone, Debug)]
pub struct Portal {
    pub enabled: bool,
    /// Whether the operator's console is there too.
    pub console: bool,
    /// Who else vouches for people that sign in.
    pub oidc: Option<Oidc>,
    /// Whether anyone may make an account.
    pub sign_up_open: bool,
    /// The plan that a new account begins with.
    pub sign_up_plan: Plan,
}

impl Default for Portal {
    fn default() -> Self {
        Self {
            enabled: true,
            console: true,
            oidc: None,
            sign_up_open: false,
            sign_up_plan: Plan::ANONYMOUS,
        }
    }
}

#[derive(Debug)]
pub struct Store {
    pub place: StoreLocation,
    pub durability: Durability,
    /// The folder in which charges wait that the store does not take.
    pub spool: PathBuf,
}

impl StoreLocation {
    /// Where charges wait unless it is said otherwise: beside the database, where that is a file.
    pub fn default_spool(&self) -> PathBuf {
        match self {
            Self::File(database) => database.with_file_name("spool"),
            Self::Postgres { .. } => "data/spool".into(),
        }
    }
}

/// Where accounts, credit and all that lasts is kept.
#[derive(Debug)]
pub enum StoreLocation {
    /// In files, of this gateway alone.
    File(PathBuf),
    /// In a database that gateways share, and how long a call waits for it before it begins.
    Postgres {
        address: Box<postgres::Address>,
        deadline: Duration,
    },
}

/// Where the last minute of requests and tokens is kept.
#[derive(Debug)]
pub enum LimiterStore {
    /// In this gateway.
    Memory,
    /// With a server that gateways share, and how long a step there may take.
    Redis {
        address: Box<limits::Address>,
        deadline: Duration,
    },
}

#[derive(Debug)]
pub enum Provider {
    Remote(Box<RemoteProvider>),
    Simulator,
}

/// Whose language a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    OpenAi,
    Anthropic,
    Gemini,
}

#[derive(Clone, Debug)]
pub struct RemoteProvider {
    pub kind: ProviderKind,
    pub base_url: String,
    /// Used in turn.
    pub api_keys: Vec<Secret>,
    pub timeouts: Timeouts,
    pub quirks: Quirks,
}

#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    /// From the request to the head of the answer.
    pub first_byte: Duration,
    /// Between two reads of the answer's body.
    pub idle: Duration,
    /// From the request to the last byte.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_mins(5),
            idle: Duration::from_mins(2),
            total: Duration::from_hours(1),
        }
    }
}

#[derive(Debug)]
pub struct Deployment {
    /// A catalog ID, or `*` for every model without a deployment of its own.
    pub model: String,
    pub provider: String,
    /// The provider's name for the model; the catalog ID where it is not given.
    pub upstream_model: Option<String>,
    pub weight: u32,
    /// The lowest number is asked first.
    pub priority: u32,
    /// Its own, where they differ from its provider's.
    pub timeouts: Option<Timeouts>,
    /// What the operator pays for it, in the form of a model's prices.
    pub cost: Option<Arc<Prices>>,
}

/// How a call finds its upstream.
#[derive(Clone, Copy, Debug)]
pub struct Routing {
    /// How often upstreams are asked for one call.
    pub attempts: u32,
    /// After this long, no other upstream is tried.
    pub timeout: Duration,
    pub choice: Choice,
}

/// Router weights from a file: read and checked, ready to score.
#[derive(Clone)]
pub struct OwnWeights {
    pub file: PathBuf,
    pub scorer: Arc<Scorer>,
}

impl fmt::Debug for OwnWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.scorer.version();
        write!(f, "OwnWeights({}, {version})", self.file.display())
    }
}

/// How one is chosen among upstreams of the same priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// As often as its weight says.
    Weight,
    /// Of two drawn by weight, the one that has been quicker to answer.
    Latency,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            attempts: 3,
            timeout: Duration::from_mins(1),
            choice: Choice::Weight,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Log {
    pub format: LogFormat,
    /// As in `RUST_LOG`: `info`, or `tollgate=debug,hyper=warn`.
    pub level: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    Pretty,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Json,
            level: "info".into(),
        }
    }
}

/// Why a configuration cannot be used: all there is to mend.
#[derive(Debug)]
pub struct ConfigError {
    source: String,
    mistakes: Vec<Mistake>,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.mistakes.len();
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        write!(f, "{} cannot be used: {count} {noun}", self.source)?;
        self.mistakes
            .iter()
            .try_for_each(|mistake| write!(f, "\n- {mistake}"))
    }
}

impl Config {
    /// How long a call of this deployment may take.
    pub fn longest_call(&self, deployment: &Deployment) -> Duration {
        let own = deployment.timeouts.map(|timeouts| timeouts.total);
        own.unwrap_or_else(|| match self.providers.get(&deployment.provider) {
            Some(Provider::Remote(remote)) => remote.timeouts.total,
            _ => Timeouts::default().total,
        })
    }

    /// The models that no deployment serves: nobody can call them. Of hybrids, those without a target that is served.
    pub fn unserved_models(&self) -> Vec<&str> {
        let is_served = |id: &str| {
            let mut models = self.deployments.iter().map(|one| one.model.as_str());
            models.any(|model| model == id || model == "*")
        };
        let unserved = self.catalog.models().filter(|model| {
            let mut targets = model.targets.iter();
            if model.is_hybrid() {
                !targets.any(|id| is_served(id))
            } else {
                !is_served(&model.id)
            }
        });
        unserved.map(|model| model.id.as_str()).collect()
    }

    /// The files whose changes count as changes of the configuration.
    pub fn named_files(&self) -> Vec<PathBuf> {
        let weights = self.weights.as_ref().map(|weights| weights.file.clone());
        self.catalog_file
            .clone()
            .into_iter()
            .chain(weights)
            .collect()
    }

    /// Reads a file, with this process's environment on top. Paths in it are relative to the
    /// directory the process was started in.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let source = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            source: source.clone(),
            mistakes: vec![Mistake {
                origin: crate::base::checked_toml::Origin::Absent,
                message: format!("the file cannot be read: {error}"),
            }],
        })?;
        // A variable that is not Unicode cannot be one of ours.
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self::parse(&source, &text, &environment)
    }

    pub fn parse(
        source: &str,
        text: &str,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        crate::base::checked_toml::parse(text)
            .and_then(|mut document| {
                let astray = environment::override_values(&mut document, environment);
                match read::config(document, environment) {
                    Ok(config) if astray.is_empty() => Ok(config),
                    Ok(_) => Err(astray),
                    Err(mistakes) => Err([mistakes, astray].concat()),
                }
            })
            .map_err(|mistakes| ConfigError {
                source: source.to_owned(),
                mistakes,
            })
    }
}
