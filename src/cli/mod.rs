//! The command line of `tollgate`: runs a gateway, checks a configuration, and sends commands to a running gateway.
//!
//! A command that fails prints one message to standard error and exits with code 1.
//!
//! This is the outermost room: it may use all others.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

mod audit;
mod backup;
mod budget_commands;
mod check;
mod check_changes;
mod config_commands;
mod demo;
mod dev;
mod export;
mod import;
mod new_file;
mod operator_client;
mod operator_commands;
mod progress;
mod prune;
mod router_calibrate;
mod serve;
mod store_option;
mod table;
mod telemetry;

use budget_commands::BudgetCommand;
use config_commands::ConfigCommand;
use operator_commands::{
    AccountCommand, CreditCommand, KeyCommand, LimitCommand, MemberCommand, ModelCommand,
    ProjectCommand, SecretCommand, Target,
};
use router_calibrate::RouterCommand;

/// A metered, OpenAI-compatible inference gateway.
#[derive(Parser)]
#[command(name = "tollgate", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a gateway with a simulated model on this machine; needs no configuration
    Dev(dev::Options),
    /// Run a gateway in production, from a configuration file
    Serve {
        /// The configuration file (TOML)
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Check a configuration file and every store, server and provider it names; changes nothing
    Check {
        /// The configuration file (TOML)
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Create, show, change and close accounts
    Account {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: AccountCommand,
    },
    /// List and remove the members of an account; change their roles
    Member {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: MemberCommand,
    },
    /// Create, list, change, disable, enable and delete API keys
    Key {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Create, list, rename and archive projects, which keys belong to
    Project {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: ProjectCommand,
    },
    /// Set, list and remove budgets of accounts, projects, members and keys
    Budget {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: BudgetCommand,
    },
    /// Show, apply and roll back what operators changed in models, aliases, deployments and providers
    Config {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Grant credit to an account; list its grants
    Credit {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: CreditCommand,
    },
    /// Set and list ceilings of requests and tokens per minute
    Limit {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: LimitCommand,
    },
    /// Show the details of one request: its timeline, its hold, its charge
    Request {
        #[command(flatten)]
        target: Target,
        /// The X-Request-ID of its response, or its ID in the usage rows
        id: String,
    },
    /// Show which model a hybrid would choose for a prompt, and why; calls no provider
    Route {
        #[command(flatten)]
        target: Target,
        /// The user's message
        prompt: String,
        /// The ID of the hybrid
        #[arg(long, default_value = "svc-hybrid-tiered")]
        model: String,
        /// Route for this account, with its plan and conversations [default: a plan with every model]
        #[arg(long)]
        account: Option<String>,
    },
    /// Tune the routers of hybrids
    Router {
        #[command(subcommand)]
        command: RouterCommand,
    },
    /// Check that the ledger adds up for every account; exit code 1 if it does not
    Audit(audit::Options),
    /// Export calls, ledger entries or daily usage as CSV or JSON lines
    Export(export::Options),
    /// Copy the files of a gateway with SQLite while it serves
    Backup(backup::Options),
    /// Remove the calls and ledger entries of old months; balances and daily sums stay
    Prune(prune::Options),
    /// Move everything from the SQLite files of a stopped gateway into an empty PostgreSQL database
    Import(import::Options),
    /// Replace the secret that signs the portal's cookies
    Secret {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: SecretCommand,
    },
    /// List models; disable, enable, hide and show them
    Model {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: ModelCommand,
    },
}

/// Parses the arguments and runs the command; a failure is one message on standard error and exit code 1.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(execute(arguments.command));
            // Exit without waiting for blocking work that goes on, such as the audit of a large database.
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            result
        }
        Err(error) => Err(format!("the async runtime did not start: {error}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("tollgate: {message}");
            ExitCode::FAILURE
        }
    }
}

async fn execute(command: Command) -> Result<(), String> {
    match command {
        Command::Dev(options) => dev::run(options).await,
        Command::Serve { config } => serve::run(&config).await,
        Command::Check { config } => check::run(&config).await,
        Command::Account { target, command } => operator_commands::account(&target, command).await,
        Command::Member { target, command } => operator_commands::member(&target, command).await,
        Command::Key { target, command } => operator_commands::key(&target, command).await,
        Command::Project { target, command } => operator_commands::project(&target, command).await,
        Command::Budget { target, command } => budget_commands::budget(&target, command).await,
        Command::Config { target, command } => config_commands::config(&target, command).await,
        Command::Credit { target, command } => operator_commands::credit(&target, command).await,
        Command::Limit { target, command } => operator_commands::limit(&target, command).await,
        Command::Request { target, id } => operator_commands::request(&target, &id).await,
        Command::Route {
            target,
            prompt,
            model,
            account,
        } => operator_commands::route(&target, &prompt, &model, account.as_deref()).await,
        Command::Router { command } => router_calibrate::run(&command),
        Command::Audit(options) => audit::run(&options).await,
        Command::Export(options) => export::run(&options).await,
        Command::Backup(options) => backup::run(options).await,
        Command::Prune(options) => prune::run(&options).await,
        Command::Import(options) => import::run(&options).await,
        Command::Secret { target, command } => operator_commands::secret(&target, &command).await,
        Command::Model { target, command } => operator_commands::model(&target, command).await,
    }
}
