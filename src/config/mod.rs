//! Reads the TOML configuration file and environment overrides into a checked [`Config`].
//!
//! A `Config` is complete: addresses are parsed, secrets are read, the catalog and router weights are loaded. Secrets
//! come from the environment or from files, never from the configuration file itself. A file with mistakes yields no
//! `Config` but a [`ConfigError`] that lists all of them, each with its line or environment variable.
//!
//! This room may use `ledger` and the rooms below it in `src/lib.rs`. It uses `ledger`, `limits`, `db`, `net`,
//! `routing`, `catalog` and `base`, mostly for the types of addresses, deadlines and weights.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

mod alerts;
mod aliases;
mod body_memory;
pub(crate) mod changes;
mod environment;
mod files;
mod identity;
mod limits_section;
mod mail;
mod oidc;
mod overload;
mod own_models;
mod paths;
mod payments;
mod portal_money;
mod proxies;
mod quirks;
mod read;
mod retries;
pub(crate) mod telemetry;
mod tools;
mod upstreams;
mod values;

pub(crate) use alerts::{Alerts, Webhook};
pub use body_memory::BodyMemoryLimits;
pub(crate) use body_memory::memory_limit;
pub use identity::{Aws, AwsSource, Azure, AzureGrant, Google, Identity};
pub(crate) use mail::{Mail, mail_server};
pub(crate) use oidc::Oidc;
pub use overload::Overload;
pub(crate) use paths::NamedFile;
pub use payments::{Offer, PaymentProvider};
pub(crate) use payments::{Payments, Stripe};
pub use portal_money::StarterCredit;
pub(crate) use quirks::MaxTokensField;
pub use quirks::Quirks;
pub use retries::Retries;
pub use tools::{Chain, Market, Tools};
pub(crate) use values::{is_loopback, is_safe_url};

use crate::{
    base::{
        checked_toml::Mistake, durability::Durability, keys::Secret, money::NanoUsd, rate::Ceilings,
    },
    catalog::{Catalog, Plan, Prices},
    db::postgres,
    limits,
    routing::Scorer,
};

pub use crate::net::http1::client::Reuse;

/// Default of `max_abandoned`. Clients that cut responses short often leave a few calls running; more than this many
/// at once are unusual.
pub(crate) const MAX_ABANDONED: u32 = 100;

/// Most refused requests per minute; 0 means no bound. A client that corrects its errors stays far below them.
#[derive(Clone, Copy, Debug)]
pub struct RefusalLimits {
    pub per_account: u32,
    /// Of requests without a valid key.
    pub per_address: u32,
}

impl Default for RefusalLimits {
    fn default() -> Self {
        Self {
            per_account: 600,
            per_address: 1_200,
        }
    }
}

#[derive(Debug)]
pub struct Config {
    pub server: Server,
    pub operator: Operator,
    pub store: Store,
    /// Default ceilings, for accounts and models without their own.
    pub limits: Ceilings,
    pub limiter_store: LimiterStore,
    pub overload: Overload,
    pub retries: Retries,
    /// An account with this many abandoned calls cannot start another call.
    pub max_abandoned: u32,
    pub refusals: RefusalLimits,
    /// Most keys of an account that are not deleted.
    pub max_keys: u32,
    /// How far a balance may go below zero because calls cost more than they held.
    pub max_overdraft: NanoUsd,
    pub providers: BTreeMap<String, Provider>,
    pub deployments: Vec<Deployment>,
    pub routing: Routing,
    /// Router weights that replace the built-in ones.
    pub weights: Option<CustomWeights>,
    pub tools: Tools,
    pub portal: Portal,
    /// The server that sends emails; without it, operators pass links on themselves.
    pub mail: Option<Mail>,
    /// How customers buy credit; `None` if they cannot.
    pub payments: Option<Payments>,
    pub alerts: Alerts,
    /// The models, and their aliases.
    pub catalog: Catalog,
    /// The catalog file, if one is configured beside or instead of the built-in catalog.
    pub catalog_file: Option<PathBuf>,
    pub log: Log,
    /// Where traces and metrics are sent; `None`: nowhere.
    pub telemetry: Option<Box<crate::telemetry::Settings>>,
    /// What the file and the environment say, without the changes of the console.
    pub(crate) base: Arc<changes::Base>,
    /// The changes of the console in it.
    pub(crate) revision: changes::Revision,
}

#[derive(Debug)]
pub struct Server {
    pub listen: SocketAddr,
    pub tls: Option<TlsFiles>,
    /// Base URL under which callers reach this gateway, for links in errors and emails; `None` means the listener's
    /// address.
    pub public_url: Option<String>,
    /// Proxies whose `X-Forwarded-For` header is trusted.
    pub trusted_proxies: Vec<ipnet::IpNet>,
    pub max_body_bytes: usize,
    /// Most connections of clients at a time; `None` means by the number of files that the process may open.
    pub max_connections: Option<usize>,
    pub body_memory: BodyMemoryLimits,
    /// Grace period: how long running responses may continue after a signal to stop.
    pub shutdown_grace: Duration,
    pub client_timeouts: ClientTimeouts,
}

/// Timeouts for slow clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
    /// From the first byte of a request's head to its last byte.
    pub head: Duration,
    /// How long a client may read nothing of a response that is ready to be sent.
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
    /// Whether `/portal/console`, the operators' pages, is served.
    pub console: bool,
    /// OpenID Connect issuer to sign in with, besides passwords.
    pub oidc: Option<Oidc>,
    /// Whether anyone may create an account.
    pub sign_up_open: bool,
    /// Plan of a newly signed-up account.
    pub sign_up_plan: Plan,
    /// Credit of a newly signed-up account.
    pub starter_credit: Option<StarterCredit>,
    /// The seller's name and address on receipts and statements, in lines.
    pub seller: Vec<String>,
    /// Who has to use two-factor authentication.
    pub require_second_factor: RequireSecondFactor,
}

/// Which people with a password need a second factor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequireSecondFactor {
    #[default]
    None,
    Operators,
    Everyone,
}

impl Default for Portal {
    fn default() -> Self {
        Self {
            enabled: true,
            console: true,
            oidc: None,
            sign_up_open: false,
            sign_up_plan: Plan::ANONYMOUS,
            starter_credit: None,
            seller: Vec::new(),
            require_second_factor: RequireSecondFactor::default(),
        }
    }
}

#[derive(Debug)]
pub struct Store {
    pub location: StoreLocation,
    pub durability: Durability,
    /// Folder of the spool, in which pending charges wait while the store cannot be written.
    pub spool: PathBuf,
    /// For how many whole months before the present one calls are kept; `None` keeps them all.
    pub keep_months: Option<u32>,
}

impl StoreLocation {
    /// Default spool folder: beside the database file, or `data/spool` with PostgreSQL.
    pub(crate) fn default_spool(&self) -> PathBuf {
        match self {
            Self::File(database) => database.with_file_name("spool"),
            Self::Postgres { .. } => "data/spool".into(),
        }
    }
}

/// Where accounts, credit and all other lasting data are stored.
#[derive(Debug)]
pub enum StoreLocation {
    /// Embedded: in files of this gateway alone.
    File(PathBuf),
    /// Shared: in a database used by several gateways. `deadline` bounds how long admission waits for it.
    Postgres {
        address: Box<postgres::Address>,
        deadline: Duration,
    },
}

/// Where the rate-limit windows are kept.
#[derive(Debug)]
pub enum LimiterStore {
    /// In the memory of this gateway.
    Memory,
    /// On a server used by several gateways. `deadline` is how long an operation waits for its reply.
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

/// Whose form of the Messages API a provider of this kind speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    #[default]
    Anthropic,
    /// Vertex AI of Google.
    Vertex,
    /// Amazon Bedrock.
    Bedrock,
}

/// The API that a provider implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    OpenAi,
    Anthropic,
    Gemini,
}

#[derive(Clone, Debug)]
pub struct RemoteProvider {
    pub kind: ProviderKind,
    pub dialect: Dialect,
    /// The beta features that a cloud gets, and no others.
    pub betas: Vec<String>,
    pub base_url: String,
    /// Used round-robin; none if there is an identity.
    pub api_keys: Vec<Secret>,
    /// Whose tokens authorise requests instead of a key.
    pub identity: Option<Identity>,
    pub timeouts: Timeouts,
    pub reuse: Reuse,
    pub quirks: Quirks,
}

#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    /// From sending the request to the head of the response.
    pub first_byte: Duration,
    /// Between two reads of the response body.
    pub idle: Duration,
    /// From sending the request to the last byte of the response.
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
    /// A catalog ID, or `*` for every model that has no deployment under its own ID.
    pub model: String,
    pub provider: String,
    /// The provider's name for the model; `None` means the catalog ID.
    pub upstream_model: Option<String>,
    pub weight: u32,
    /// Deployments with the lowest number are tried first.
    pub priority: u32,
    /// Timeouts of this deployment; `None` means its provider's.
    pub timeouts: Option<Timeouts>,
    /// What the operator pays the provider; `None` if unknown.
    pub cost: Option<Arc<Prices>>,
}

/// How a call chooses among deployments, and how far failover goes.
#[derive(Clone, Copy, Debug)]
pub struct Routing {
    /// Most attempts for one step of a call; counted anew for each model that a hybrid escalates to.
    pub attempts: u32,
    /// Failover timeout (`patience_seconds`): after this long, no further attempt with the model is started.
    pub timeout: Duration,
    pub choice: Choice,
}

/// Router weights from a file, already parsed and checked.
#[derive(Clone)]
pub struct CustomWeights {
    pub file: PathBuf,
    pub scorer: Arc<Scorer>,
}

impl fmt::Debug for CustomWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.scorer.version();
        write!(f, "CustomWeights({}, {version})", self.file.display())
    }
}

/// How one deployment is chosen among those of the same priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Randomly, in proportion to the weights.
    Weight,
    /// The one with the lower latency of two drawn by weight.
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
    /// A filter in the syntax of `RUST_LOG`: `info`, or `tollgate=debug,hyper=warn`.
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

/// Every mistake in a configuration that cannot be used.
#[derive(Debug)]
pub struct ConfigError {
    source: String,
    mistakes: Vec<Mistake>,
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    pub(crate) fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

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
    /// Total timeout of an attempt with this deployment.
    pub(crate) fn longest_call(&self, deployment: &Deployment) -> Duration {
        let own = deployment.timeouts.map(|timeouts| timeouts.total);
        own.unwrap_or_else(|| match self.providers.get(&deployment.provider) {
            Some(Provider::Remote(remote)) => remote.timeouts.total,
            _ => Timeouts::default().total,
        })
    }

    /// Models that cannot be called because no deployment serves them; hybrids if none of their targets is served.
    pub(crate) fn unserved_models(&self) -> Vec<&str> {
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

    /// Files named in the configuration whose changes require a reload: those with secrets, and the catalog and the
    /// router weights.
    pub(crate) fn named_files(&self) -> Vec<NamedFile> {
        let named = |setting: &str, path: &Path| NamedFile {
            setting: setting.to_owned(),
            path: path.to_owned(),
        };
        let catalog = self.catalog_file.iter();
        let catalog = catalog.map(|path| named("catalog.file", path));
        let weights = self.weights.iter();
        let weights = weights.map(|weights| named("routing.weights", &weights.file));
        let files = catalog.chain(weights);
        files.chain(self.base.secret_files()).collect()
    }

    /// Reads a configuration file and applies overrides from this process's environment.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let (source, text, environment) = read_file(path)?;
        Self::read((&source, &text), folder_of(path), &environment)
    }

    /// Reads the section `[store]` of a file and nothing else, for commands that need no provider: they can be run
    /// where the secrets of the other sections are not set.
    pub(crate) fn load_store(path: &Path) -> Result<Store, ConfigError> {
        let (source, text, environment) = read_file(path)?;
        let document = crate::base::checked_toml::parse(&text);
        let store = document.and_then(|mut document| {
            // Overrides of what is left out below cannot be wrong here.
            let _ = environment::override_values(&mut document, &environment);
            let moved = paths::resolve(&mut document, folder_of(path));
            let store = read::store_alone(document, &environment)?;
            if moved.is_empty() {
                Ok(store)
            } else {
                Err(moved)
            }
        });
        store.map_err(|mistakes| ConfigError { source, mistakes })
    }

    /// This configuration with what `changed` says of models, aliases, deployments and providers.
    pub(crate) fn adopting(self, changed: Self) -> Self {
        Self {
            providers: changed.providers,
            deployments: changed.deployments,
            catalog: changed.catalog,
            revision: changed.revision,
            ..self
        }
    }

    /// Like [`Self::load`], from a text and a given environment; `source` names the text in errors.
    pub fn parse(
        source: &str,
        text: &str,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        Self::read((source, text), Path::new(""), environment)
    }

    /// `folder` is what relative paths are relative to.
    fn read(
        (source, text): (&str, &str),
        folder: &Path,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        crate::base::checked_toml::parse(text)
            .and_then(|mut document| {
                let mut wrong = environment::override_values(&mut document, environment);
                let (own_models, mistakes) = own_models::take_apart(&mut document);
                wrong.extend(mistakes);
                let base = changes::Base::new(source, folder, document, own_models, environment);
                match Arc::new(base).config(&changes::Revision::default()) {
                    Ok(config) if wrong.is_empty() => Ok(config),
                    Ok(_) => Err(wrong),
                    Err(mistakes) => Err([mistakes, wrong].concat()),
                }
            })
            .map_err(|mistakes| ConfigError {
                source: source.to_owned(),
                mistakes,
            })
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// The file's name and text, and the variables of this process.
fn read_file(path: &Path) -> Result<(String, String, values::Environment), ConfigError> {
    let source = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
        source: source.clone(),
        mistakes: vec![Mistake {
            origin: crate::base::checked_toml::Origin::Absent,
            message: format!("the file cannot be read: {error}"),
        }],
    })?;
    // Variables that are not Unicode are ignored: none of ours can be.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok((source, text, environment))
}
