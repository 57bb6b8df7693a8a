//! The command line.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

mod audit;
mod check;
mod demo;
mod dev;
mod operator_client;
mod operator_commands;
mod router_calibrate;
mod serve;
mod table;
mod telemetry;

use operator_commands::{
    AccountCommand, CreditCommand, KeyCommand, LimitCommand, ModelCommand, Target,
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
    /// Run everything on this machine, with a simulated model: no configuration needed
    Dev(dev::Options),
    /// Run in production, from a configuration file
    Serve {
        /// The configuration file (TOML)
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Check a configuration file, the store and every provider it names; changes nothing
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
    /// Create, list, disable, enable and delete API keys
    Key {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Give credit to an account and list what it was given
    Credit {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: CreditCommand,
    },
    /// Set and list requests and tokens a minute
    Limit {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: LimitCommand,
    },
    /// Tell the whole story of one request: its times, its hold, its charge
    Request {
        #[command(flatten)]
        target: Target,
        /// The X-Request-ID of its answer, or its number in the usage rows
        id: String,
    },
    /// Tell which model a hybrid would choose for a prompt, and why; no provider is asked
    Route {
        #[command(flatten)]
        target: Target,
        /// What a user would say
        prompt: String,
        /// The hybrid
        #[arg(long, default_value = "svc-hybrid-tiered")]
        model: String,
        /// For whom: its plan and its conversations count [default: every model is included]
        #[arg(long)]
        account: Option<String>,
    },
    /// Work on how hybrids choose
    Router {
        #[command(subcommand)]
        command: RouterCommand,
    },
    /// Check that every account's books add up; exit code 1 if one does not
    Audit(audit::Options),
    /// List models; disable, enable, hide and show them
    Model {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: ModelCommand,
    },
}

/// Does what the arguments say; a failure is one message on standard error and exit code 1.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(execute(arguments.command));
            // A look through a large database must not hold up the end.
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            done
        }
        Err(error) => Err(format!("the async runtime did not start: {error}")),
    };
    match done {
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
        Command::Key { target, command } => operator_commands::key(&target, command).await,
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
        Command::Model { target, command } => operator_commands::model(&target, command).await,
    }
}
