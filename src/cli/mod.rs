//! The command line of `tollgate`: runs a gateway, checks a configuration, and sends commands to a running gateway.
//!
//! A command that fails prints one message to standard error and exits with code 1.
//!
//! This is the outermost room: it may use all others.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

mod backup;
mod check;
mod check_changes;
mod check_listeners;
mod config_commands;
mod demo;
mod dev;
mod export;
mod health;
mod http_client;
mod import;
mod init;
mod logging;
mod margin;
mod new_file;
mod openapi;
mod operator;
mod output;
mod progress;
mod prune;
mod router_calibrate;
mod serve;
mod shell;
mod store_option;

use config_commands::ConfigCommand;
use operator::{
    AccountCommand, BudgetCommand, CreditCommand, KeyCommand, LimitCommand, MemberCommand,
    ModelCommand, ProjectCommand, RequestOptions, RouteOptions, SecretCommand, Target, audit,
};
use router_calibrate::RouterCommand;

use crate::base::version::FULL_VERSION;

/// A metered, OpenAI-compatible inference gateway.
#[derive(Parser)]
#[command(name = "tollgate", version = FULL_VERSION, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a gateway with a simulated model on this machine; needs no configuration
    Dev(dev::Options),
    /// Write a configuration for your provider and models; asks what it needs to know
    Init(init::Options),
    /// Run a gateway in production, from a configuration file
    Serve {
        /// The configuration file (TOML)
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// If the changes of the console cannot be read, serve the file without them until they can
        #[arg(long)]
        without_console_changes: bool,
    },
    /// Check a configuration file and every store, server and provider it names; changes nothing
    Check(check::Options),
    /// Ask a running gateway whether it takes requests; exit code 1 if it does not
    Health(health::Options),
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
    Request(RequestOptions),
    /// Show which model a hybrid would choose for a prompt, and why; calls no provider
    Route(RouteOptions),
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
    /// Print the OpenAPI description of the public API, as a gateway serves it at /openapi.json
    Openapi(openapi::Options),
    /// Print the completions of a shell
    Completions(shell::Completions),
    /// Write the manual pages
    Man(shell::Manual),
    /// List models; disable, enable, hide and show them; suggest prices
    #[command(visible_alias = "models")]
    Model {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: ModelCommand,
    },
}

/// Parses the arguments and runs the command; a failure is one message on standard error and exit code 1.
pub fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
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
        Err(message) => fail(&message),
    }
}

fn fail(message: &str) -> ExitCode {
    output::tell(&format!("tollgate: {message}"));
    ExitCode::FAILURE
}

/// Prints the help or the version that was asked for, or what is wrong with the arguments.
fn explain(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match output::written(printed) {
        Err(message) if !error.use_stderr() => fail(&message),
        _ => u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

async fn execute(command: Command) -> Result<(), String> {
    match command {
        Command::Dev(options) => dev::run(options).await,
        Command::Init(options) => init::run(&options),
        // Boxed, because it is large.
        Command::Serve {
            config,
            without_console_changes,
        } => Box::pin(serve::run(&config, without_console_changes)).await,
        Command::Check(options) => check::run(&options).await,
        Command::Health(options) => health::run(&options).await,
        Command::Account { target, command } => command.run(&target).await,
        Command::Member { target, command } => command.run(&target).await,
        Command::Key { target, command } => command.run(&target).await,
        Command::Project { target, command } => command.run(&target).await,
        Command::Budget { target, command } => command.run(&target).await,
        Command::Config { target, command } => config_commands::config(&target, command).await,
        Command::Credit { target, command } => command.run(&target).await,
        Command::Limit { target, command } => command.run(&target).await,
        Command::Request(options) => options.run().await,
        Command::Route(options) => options.run().await,
        Command::Router { command } => router_calibrate::run(&command),
        Command::Audit(options) => audit::run(&options).await,
        Command::Export(options) => export::run(&options).await,
        Command::Backup(options) => backup::run(options).await,
        Command::Prune(options) => prune::run(&options).await,
        Command::Import(options) => import::run(&options).await,
        Command::Secret { target, command } => command.run(&target).await,
        Command::Model { target, command } => command.run(&target).await,
        Command::Openapi(options) => openapi::run(options),
        Command::Completions(options) => shell::completions(&options),
        Command::Man(options) => shell::manual(&options),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Calls `each` with the words of every command that does something, and the command.
    fn each_command(
        command: &clap::Command,
        words: &str,
        each: &mut dyn FnMut(&str, &clap::Command),
    ) {
        let inner: Vec<_> = command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help")
            .collect();
        if inner.is_empty() {
            each(words, command);
        }
        for inner in inner {
            each_command(inner, &format!("{words} {}", inner.get_name()), each);
        }
    }

    fn built() -> clap::Command {
        let mut command = Arguments::command();
        command.build();
        command
    }

    #[test]
    fn every_command_and_argument_has_a_help_text() {
        let mut silent = Vec::new();
        each_command(&built(), "tollgate", &mut |words, command| {
            if command.get_about().is_none() {
                silent.push(words.to_owned());
            }
            for argument in command.get_arguments() {
                if argument.get_help().is_none() && !argument.is_hide_set() {
                    silent.push(format!("{words} {}", argument.get_id()));
                }
            }
        });
        assert!(silent.is_empty(), "{silent:#?}");
    }

    #[test]
    fn every_account_is_named_by_its_id_or_its_email() {
        let (mut taken, mut without) = (0, Vec::new());
        each_command(&built(), "tollgate", &mut |words, command| {
            let named = command.get_arguments();
            for argument in named.filter(|argument| argument.get_id() == "account") {
                taken += 1;
                let help = argument.get_help().map(ToString::to_string);
                if help.is_none_or(|help| !help.contains("ID or email")) {
                    without.push(words.to_owned());
                }
            }
        });
        assert!(taken >= 19, "{taken} commands");
        assert!(without.is_empty(), "{without:#?}");
    }

    /// Those without a result, and those that print JSON already, like the logs of `serve`.
    const WITHOUT_JSON: [&str; 3] = ["tollgate serve", "tollgate openapi", "tollgate completions"];

    #[test]
    fn every_command_can_print_json() {
        let mut without = Vec::new();
        each_command(&built(), "tollgate", &mut |words, command| {
            if !command
                .get_arguments()
                .any(|argument| argument.get_id() == "json")
            {
                without.push(words.to_owned());
            }
        });
        assert_eq!(without, WITHOUT_JSON);
    }
}
