//! Load times of pages with a million requests in the ledger: `cargo bench --bench pages`, with files and with a
//! private PostgreSQL and Redis.
//!
//! Half of the requests belong to one account, over ninety days, ten keys and four models; the rest to two hundred
//! others. A signed-in browser loads each page repeatedly over one connection, timed from the request to the last
//! byte. Then each page is loaded once more, and the query plans of its statements are printed. The benchmark fails
//! if a page takes five milliseconds or more, a CSV file twenty, or the margin of all accounts two hundred.
//! `cargo bench --bench pages -- files usage` only measures the pages with `usage` in their address, and only with
//! files (or `servers`).

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tollgate::{
    backoffice::{NewPerson, Role, TeamRole},
    base::durability::Durability,
    config::Config,
    db::postgres::Address,
    ledger::{self, Ledger},
    server::{self, Running},
};

mod browser;
mod fill;
mod life;
mod plans;
#[path = "../../src/db/testing/postgres_server.rs"]
mod postgres_server;
#[allow(dead_code, reason = "tests use more of it")]
#[path = "../../tests/it/support/redis_server.rs"]
mod redis_server;
#[path = "../support/mod.rs"]
mod support;

use browser::Browser;
use fill::Filled;
use postgres_server::PostgresServer;
use redis_server::RedisServer;

/// The highest allowed median of a page's load time.
const BOUND: Duration = Duration::from_millis(5);
/// The same for files to download.
const DOWNLOAD_BOUND: Duration = Duration::from_millis(20);
/// The same for the margin of all accounts: it counts the calls that were charged below their cost, which no sum has.
const MARGIN_BOUND: Duration = Duration::from_millis(200);
const MARGIN: &str = "/portal/console/margin";
/// Loads per page.
const TIMES: usize = 200;
const EMAIL: &str = "bench@example.com";
const PASSWORD: &str = "a password for a benchmark";
const OPERATOR_TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";

fn main() -> ExitCode {
    // `cargo test --benches` only checks that this compiles: a run would need servers and minutes.
    if std::env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let chosen = Chosen::read(std::env::args().skip(1));
    let statements = plans::listen();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut is_quick = true;
    if chosen.stores != Some("servers") {
        is_quick &= runtime.block_on(files(&statements, &chosen));
    }
    if chosen.stores != Some("files") {
        is_quick &= runtime.block_on(servers(&chosen));
    }
    if is_quick {
        ExitCode::SUCCESS
    } else {
        eprintln!(
            "a page took longer than allowed: {BOUND:?}, a CSV file {DOWNLOAD_BOUND:?}, margin {MARGIN_BOUND:?}"
        );
        ExitCode::FAILURE
    }
}

/// What the arguments choose: everything without any.
struct Chosen {
    stores: Option<&'static str>,
    texts: Vec<String>,
}

impl Chosen {
    fn read(arguments: impl Iterator<Item = String>) -> Self {
        let (mut stores, mut texts) = (None, Vec::new());
        for argument in arguments {
            match argument.as_str() {
                "files" => stores = Some("files"),
                "servers" => stores = Some("servers"),
                // Of cargo.
                "--bench" => {}
                _ => texts.push(argument),
            }
        }
        Self { stores, texts }
    }

    fn has(&self, page: &str) -> bool {
        self.texts.is_empty() || self.texts.iter().any(|text| page.contains(text))
    }
}

async fn files(statements: &plans::Statements, chosen: &Chosen) -> bool {
    println!("\n# In files (SQLite)");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tollgate.db");
    let filled = fill::fill_file(&path).await;
    let stores = format!("store.url = \"sqlite:{}\"\n", path.display());
    let running = start(&stores).await;
    let connection = rusqlite::Connection::open(path.with_extension("portal.db")).unwrap();
    connection.execute_batch(&life::payments(&filled)).unwrap();
    drop(connection);
    let (browser, pages) = visit(&running, &filled, chosen).await;
    let quick = measure(&browser, &pages).await;
    println!("\n## Plans");
    for page in &pages {
        statements.lock().unwrap().clear();
        browser.get(page).await;
        let asked = std::mem::take(&mut *statements.lock().unwrap());
        plans::show_in_file(&path, page, &asked);
    }
    running.stop().await;
    quick
}

async fn servers(chosen: &Chosen) -> bool {
    println!("\n# On PostgreSQL and Redis");
    let settings = [
        "autovacuum=on",
        "logging_collector=on",
        "shared_buffers=256MB",
    ];
    let postgres = PostgresServer::own_with(&settings);
    let redis = RedisServer::own();
    let database = postgres.database();
    let address = Address::parse(&database).unwrap();
    let ledger = Ledger::share(&address, Durability::Process, ledger::DEADLINE * 20).await;
    let filled = fill::fill(ledger.unwrap(), None).await;
    let name = database.rsplit_once('/').unwrap().1;
    fill::spread_on_server(&postgres, name);
    let folder = TempDir::new().unwrap();
    let stores = format!(
        "store.url = \"{database}\"\nstore.spool = \"{}\"\nlimits.url = \"{}\"\n",
        folder.path().join("spool").display(),
        redis.url()
    );
    let running = start(&stores).await;
    postgres.psql(name, &life::payments(&filled));
    let (browser, pages) = visit(&running, &filled, chosen).await;
    let quick = measure(&browser, &pages).await;
    running.stop().await;
    println!("\n## Plans");
    plans::explain_from_now_on(&postgres, name);
    let running = start(&stores).await;
    let browser = Browser::signed_in(&running.origin, EMAIL, PASSWORD).await;
    let mut log = plans::Log::of(&postgres);
    for page in &pages {
        log.skip();
        browser.get(page).await;
        log.show(page);
    }
    running.stop().await;
    quick
}

async fn start(stores: &str) -> Running {
    let text = format!(
        "{stores}server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
         limits.refused_per_account = 0\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n\
         [providers.play]\nkind = \"simulator\"\n\
         [payments]\nprovider = \"stripe\"\nsecret_key_env = \"STRIPE_KEY\"\nwebhook_secret_env = \"STRIPE_WEBHOOK\"\n"
    );
    let variables = [
        ("TOLLGATE_OPERATOR_TOKEN", OPERATOR_TOKEN),
        // No page calls the provider of payments.
        ("STRIPE_KEY", "sk_test_bench"),
        ("STRIPE_WEBHOOK", "whsec_bench"),
    ];
    let variables = variables.map(|(name, value)| (name.into(), value.into()));
    let config = Config::parse("bench", &text, &BTreeMap::from(variables)).unwrap();
    server::start(config).await.unwrap()
}

/// A browser of a person who owns the large account and is an operator, and the pages to load.
async fn visit(running: &Running, filled: &Filled, chosen: &Chosen) -> (Browser, Vec<String>) {
    let backoffice = &running.gateway.backoffice;
    let hash = backoffice.passwords.hash(PASSWORD.into()).await.unwrap();
    let new = NewPerson {
        email: EMAIL.into(),
        name: None,
        password: Some(hash),
        role: Role::Operator,
        account_id: filled.large.clone(),
        team_role: TeamRole::Owner,
        now: 0,
    };
    backoffice.add_person(new).await.unwrap();
    let browser = Browser::signed_in(&running.origin, EMAIL, PASSWORD).await;
    life::live(running, filled).await;
    let (account, key) = (&filled.large, &filled.key);
    let mut pages: Vec<String> = [
        "/portal",
        "/portal/keys",
        "/portal/usage",
        "/portal/usage?days=90",
        "/portal/usage?range=24h",
        "/portal/usage?range=1h",
        "/portal/usage.csv?days=90",
        "/portal/requests",
        "/portal/requests?outcome=errors",
        "/portal/requests?last=24h",
        "/portal/requests?session=none",
        "/portal/requests?outcome=provider_failed",
        "/portal/requests/refused",
        "/portal/playground",
        "/portal/projects",
        "/portal/billing",
        "/portal/billing.csv",
        "/portal/billing/payments",
        "/portal/billing/statements",
        "/portal/billing/top-up",
        "/portal/billing/details",
        "/portal/budgets",
        "/portal/members",
        "/portal/plan",
        "/portal/models",
        "/portal/settings",
        "/portal/settings/two-factor",
        "/portal/console",
        "/portal/console/live",
        "/portal/console/live/requests",
        "/portal/console/live/requests?outcome=errors",
        "/portal/console/accounts",
        "/portal/console/accounts?text=reader7",
        "/portal/console/requests",
        "/portal/console/requests?outcome=provider_failed",
        "/portal/console/requests/refused",
        "/portal/console/people",
        "/portal/console/models",
        MARGIN,
        "/portal/console/alerts",
        "/portal/console/deployments",
        "/portal/console/limits",
        "/portal/console/actions",
    ]
    .map(str::to_owned)
    .into();
    for page in [
        "",
        "/models/edit?name=svc-standard",
        "/aliases/edit?name=name-7",
        "/deployments/new",
        "/providers/edit?name=play",
        "/history",
        "/history/20",
    ] {
        pages.push(format!("/portal/console/config{page}"));
    }
    pages.push(format!("/portal/requests?key={key}"));
    pages.push(format!("/portal/console/accounts/{account}"));
    pages.push(format!("/portal/console/requests?account={account}"));
    pages.push(format!("/portal/keys/{key}"));
    pages.push(format!("/portal/billing/receipts/{}", life::RECEIPT));
    // This month's statement, which is made from the ledger, and that of the month before, which is stored.
    let list = browser.get("/portal/billing/statements").await;
    let months = list.split("href=\"/portal/billing/statements/").skip(1);
    for month in months.take(2).filter_map(|link| link.split('"').next()) {
        pages.push(format!("/portal/billing/statements/{month}"));
    }
    let refused = browser.get("/portal/requests/refused").await;
    let refused = browser::between(&refused, "/portal/requests/refused_", "\"");
    pages.push(format!("/portal/requests/refused_{refused}"));
    // The second page of the list, and the details of a request: the latest ones were refused.
    let first = browser.get("/portal/requests").await;
    pages.push(browser::between(&first, "rel=\"next\" href=\"", "\"").replace("&amp;", "&"));
    let answered = browser.get("/portal/requests?outcome=answered").await;
    let story = browser::between(&answered, "/portal/requests/call_", "\"");
    pages.push(format!("/portal/requests/call_{story}"));
    pages.push(format!("/portal/console/requests/call_{story}"));
    pages.retain(|page| chosen.has(page));
    (browser, pages)
}

/// Whether every page is fast enough.
async fn measure(browser: &Browser, pages: &[String]) -> bool {
    println!("\n{:>9} {:>9} {:>9}  page", "median", "99 %", "bytes");
    let mut quick = true;
    for page in pages {
        let mut took = Vec::with_capacity(TIMES);
        let mut bytes = 0;
        for _ in 0..TIMES {
            let started = Instant::now();
            bytes = browser.get(page).await.len();
            took.push(started.elapsed());
        }
        took.sort();
        let (median, most) = (took[TIMES / 2], took[TIMES * 99 / 100]);
        let bound = match page.as_str() {
            MARGIN => MARGIN_BOUND,
            page if page.contains(".csv") => DOWNLOAD_BOUND,
            _ => BOUND,
        };
        quick &= median < bound;
        println!("{median:>9.1?} {most:>9.1?} {bytes:>9}  {page}");
    }
    quick
}

/// Data folder of a private server.
fn data(postgres: &PostgresServer) -> PathBuf {
    Path::join(postgres.folder(), "data")
}
