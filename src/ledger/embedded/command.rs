//! The commands of the writer thread, and their replies.
//!
//! A command is executed within a transaction. Its reply is sent once the transaction is committed, or says that nothing
//! has happened.

use std::{panic::AssertUnwindSafe, sync::Arc};

use tokio::sync::oneshot;

use super::{
    directory::Shared,
    sqlite::{Database, budgets::Sum},
    steps,
};
use crate::{
    ledger::{
        Account, AccountChange, Call, Charged, Edit, Grant, Key, KeyChange, KeyState, LedgerError,
        LimitRule, ModelSettings, PendingCharge, Project, Replay, Violation,
        budgets::{Budget, BudgetState},
        rotation::Rotation,
    },
    net::callbacks::{Callback, Queue},
    wire::chat::Usage,
};

/// A change of the ledger, with where its result goes.
pub(crate) enum Command {
    /// Charges a call that holds credit.
    Charge(Arc<Call>, Usage, Reply<Charged>),
    /// Charges a call of an earlier process, unless its end is recorded already.
    SettlePending(Arc<PendingCharge>, Reply<Option<Charged>>),
    /// Records a call that ended without a charge. Without a hold it may be recorded already.
    RecordReleased {
        call: Box<Call>,
        was_held: bool,
    },
    /// Records a request that got the response of another call.
    RecordReplay(Box<Replay>),
    /// Deletes responses kept for retries that are too old at this time, and makes room while they take more than so
    /// many bytes.
    SweepResponses(i64, u64, Reply<bool>),
    AddGrant(String, Grant, Reply<Grant>),
    CreateAccount(Account, Reply<Account>),
    /// Creates an account unless its ID exists.
    EnsureAccount(Account, Reply<Account>),
    ChangeAccount(String, AccountChange, Reply<Account>),
    /// Replaces the names of a deleted account's keys and projects.
    EraseTexts(String, Vec<(String, String)>, Reply<()>),
    /// Creates a key unless the account has this many live ones.
    CreateKey(Key, u32, Reply<Key>),
    SetKeyState(String, KeyState, Reply<Key>),
    ChangeKey(String, Box<KeyChange>, Reply<Key>),
    /// Gives a key a new secret, at a time in seconds.
    RotateKey(String, Box<Rotation>, i64, Reply<Key>),
    ChangeProject(steps::ProjectChange, Reply<Project>),
    /// Sets a budget at a time in seconds; what was spent is summed up to some entry. `None` if it must be summed again.
    SetBudget(Box<Budget>, i64, Sum, Reply<Option<BudgetState>>),
    RemoveBudget(String, Reply<Budget>),
    SetModel(ModelChange, Reply<ModelSettings>),
    SetLimit(LimitChange, Reply<LimitRule>),
    /// Posts the expiries of these accounts up to a time in seconds.
    PostExpiries(Vec<String>, i64, Reply<()>),
    /// Compares the memory of these accounts with the database.
    CompareMemory(Vec<String>, Reply<Vec<Violation>>),
    /// Freezes the accounts that an audit found.
    Freeze(steps::Frozen, Reply<()>),
    /// Has the redo log posted with this transaction.
    PostRedoLog(Reply<()>),
    /// Executed by a request thread whose commit failed; only its reply is left to send.
    Failed(Executed),
    #[cfg(test)]
    Test(TestStep, Reply<()>),
}

#[cfg(test)]
pub(crate) type TestStep = Box<dyn FnOnce(&Database, &Shared) -> Result<(), LedgerError> + Send>;

/// Settings of a model to change; `None` keeps what there is.
pub(crate) struct ModelChange {
    pub model_id: String,
    pub enabled: Option<bool>,
    pub unlisted: Option<bool>,
}

/// Ceilings to change, for an account and a model or for all of them.
pub(crate) struct LimitChange {
    pub account: Option<String>,
    pub model: Option<String>,
    pub requests: Edit<u32>,
    pub tokens: Edit<u32>,
}

/// Where the result of a command goes: the task that waits for it, on its own thread.
pub(crate) struct Reply<T> {
    to: oneshot::Sender<Result<T, LedgerError>>,
    thread: Option<Arc<Queue>>,
}

impl<T: Send + 'static> Reply<T> {
    /// A reply to this thread, and the receiving end.
    pub(crate) fn here() -> (Self, oneshot::Receiver<Result<T, LedgerError>>) {
        let (to, result) = oneshot::channel();
        let thread = Queue::of_this_thread();
        (Self { to, thread }, result)
    }

    /// Sends the result: at once on the same thread, else by a callback to be delivered.
    fn send(self, result: Result<T, LedgerError>) -> Option<Callback> {
        let Self { to, thread } = self;
        let elsewhere = thread.filter(|thread| !thread.is_of_this_thread());
        Callback::to(elsewhere, move || drop(to.send(result)))
    }
}

/// A result that waits for the commit of its transaction.
struct PendingReply<T> {
    result: Result<T, LedgerError>,
    reply: Reply<T>,
}

/// A command that was executed in a transaction that is still open.
pub(crate) struct Executed {
    /// The database refused something, or the command panicked: the transaction must be rolled back.
    pub failed: bool,
    outcome: Outcome,
}

enum Outcome {
    Charge(PendingReply<Charged>, Arc<Call>),
    Settled(PendingReply<Option<Charged>>, Arc<PendingCharge>),
    Released(Result<(), LedgerError>, CallLabel),
    Replayed(Result<(), LedgerError>, CallLabel),
    Grant(PendingReply<Grant>),
    Account(PendingReply<Account>),
    Key(PendingReply<Key>),
    Project(PendingReply<Project>),
    BudgetSet(PendingReply<Option<BudgetState>>),
    BudgetRemoved(PendingReply<Budget>),
    Model(PendingReply<ModelSettings>),
    Limit(PendingReply<LimitRule>),
    Violations(PendingReply<Vec<Violation>>),
    /// Whether there may be more to do.
    Swept(PendingReply<bool>),
    Done(PendingReply<()>),
}

/// Identifies a call in a log line.
struct CallLabel {
    id: u64,
    account_id: String,
}

/// The database and the memory of an open transaction; `None` if it could not be opened.
type Within<'a> = Option<(&'a Database, &'a Shared)>;

impl Command {
    /// Executes the command within an open transaction; without one its result is an error.
    #[expect(clippy::too_many_lines, reason = "one arm for each command")]
    pub(crate) fn execute(self, within: Within<'_>) -> Executed {
        match self {
            Self::Charge(call, usage, reply) => {
                let result = run(within, |database, directory| {
                    let cost = call.price(usage);
                    steps::charge(database, directory, &call, usage, cost)
                });
                executed(result, reply, |pending| Outcome::Charge(pending, call))
            }
            Self::SettlePending(pending, reply) => {
                let result = run(within, |database, directory| {
                    steps::settle_pending(database, directory, &pending)
                });
                executed(result, reply, |result| Outcome::Settled(result, pending))
            }
            Self::RecordReleased { call, was_held } => {
                let label = CallLabel {
                    id: call.id.0,
                    account_id: call.account_id.clone(),
                };
                let result = run(within, |database, _| {
                    steps::record_released(database, &call, was_held)
                });
                Executed {
                    failed: is_fatal(&result),
                    outcome: Outcome::Released(result, label),
                }
            }
            Self::RecordReplay(replay) => {
                let label = CallLabel {
                    id: replay.call_id.0,
                    account_id: replay.account_id.clone(),
                };
                let result = run(within, |database, _| Ok(database.insert_replay(&replay)?));
                Executed {
                    failed: is_fatal(&result),
                    outcome: Outcome::Replayed(result, label),
                }
            }
            Self::SweepResponses(now_ms, most, reply) => {
                let result = run(within, |database, _| {
                    Ok(database.sweep_responses(now_ms, most)?)
                });
                executed(result, reply, Outcome::Swept)
            }
            Self::AddGrant(account_id, grant, reply) => {
                let result = run(within, |database, directory| {
                    steps::add_grant(database, directory, &account_id, grant)
                });
                executed(result, reply, Outcome::Grant)
            }
            Self::CreateAccount(account, reply) => {
                let result = run(within, |database, directory| {
                    steps::create_account(database, directory, account)
                });
                executed(result, reply, Outcome::Account)
            }
            Self::EnsureAccount(account, reply) => {
                let result = run(within, |database, directory| {
                    steps::ensure_account(database, directory, account)
                });
                executed(result, reply, Outcome::Account)
            }
            Self::ChangeAccount(id, change, reply) => {
                let result = run(within, |database, directory| {
                    steps::change_account(database, directory, &id, change)
                });
                executed(result, reply, Outcome::Account)
            }
            Self::EraseTexts(id, reasons, reply) => {
                let result = run(within, |database, directory| {
                    steps::erase_texts(database, directory, &id, &reasons)
                });
                executed(result, reply, Outcome::Done)
            }
            Self::CreateKey(key, max, reply) => {
                let result = run(within, |database, directory| {
                    steps::create_key(database, directory, key, max)
                });
                executed(result, reply, Outcome::Key)
            }
            Self::SetKeyState(id, state, reply) => {
                let result = run(within, |database, directory| {
                    steps::set_key_state(database, directory, &id, state)
                });
                executed(result, reply, Outcome::Key)
            }
            Self::ChangeKey(id, change, reply) => {
                let result = run(within, |database, directory| {
                    steps::change_key(database, directory, &id, *change)
                });
                executed(result, reply, Outcome::Key)
            }
            Self::RotateKey(id, new, now, reply) => {
                let result = run(within, |database, directory| {
                    steps::rotate_key(database, directory, &id, *new, now)
                });
                executed(result, reply, Outcome::Key)
            }
            Self::ChangeProject(change, reply) => {
                let result = run(within, |database, directory| {
                    steps::change_project(database, directory, change)
                });
                executed(result, reply, Outcome::Project)
            }
            Self::SetBudget(budget, now, sum, reply) => {
                let result = run(within, |database, directory| {
                    steps::set_budget(database, directory, *budget, now, &sum)
                });
                executed(result, reply, Outcome::BudgetSet)
            }
            Self::RemoveBudget(id, reply) => {
                let result = run(within, |database, directory| {
                    steps::remove_budget(database, directory, &id)
                });
                executed(result, reply, Outcome::BudgetRemoved)
            }
            Self::SetModel(change, reply) => {
                let result = run(within, |database, directory| {
                    steps::set_model(database, directory, change)
                });
                executed(result, reply, Outcome::Model)
            }
            Self::SetLimit(change, reply) => {
                let result = run(within, |database, directory| {
                    steps::set_limit(database, directory, change)
                });
                executed(result, reply, Outcome::Limit)
            }
            Self::PostExpiries(accounts, now, reply) => {
                let result = run(within, |database, directory| {
                    steps::post_expiries(database, directory, &accounts, now)
                });
                executed(result, reply, Outcome::Done)
            }
            Self::CompareMemory(accounts, reply) => {
                let result = run(within, |database, directory| {
                    steps::compare_memory(database, directory, &accounts)
                });
                executed(result, reply, Outcome::Violations)
            }
            Self::Freeze(frozen, reply) => {
                let result = run(within, |_, directory| {
                    directory.write().freeze(frozen.accounts, frozen.replaces);
                    Ok(())
                });
                executed(result, reply, Outcome::Done)
            }
            Self::PostRedoLog(reply) => {
                let result = run(within, |database, _| {
                    database.want_posting();
                    Ok(())
                });
                executed(result, reply, Outcome::Done)
            }
            Self::Failed(executed) => Executed {
                failed: true,
                ..executed
            },
            #[cfg(test)]
            Self::Test(step, reply) => executed(run(within, step), reply, Outcome::Done),
        }
    }
}

/// A command that panics fails; the thread and all later commands go on.
fn run<T>(
    within: Within<'_>,
    step: impl FnOnce(&Database, &Shared) -> Result<T, LedgerError>,
) -> Result<T, LedgerError> {
    let Some((database, directory)) = within else {
        return Err(LedgerError::NotCommitted);
    };
    std::panic::catch_unwind(AssertUnwindSafe(|| step(database, directory)))
        .unwrap_or(Err(LedgerError::Stopped))
}

fn executed<T>(
    result: Result<T, LedgerError>,
    reply: Reply<T>,
    outcome: impl FnOnce(PendingReply<T>) -> Outcome,
) -> Executed {
    Executed {
        failed: is_fatal(&result),
        outcome: outcome(PendingReply { result, reply }),
    }
}

/// Whether the transaction cannot be committed. Other errors are refusals that changed nothing.
fn is_fatal<T>(result: &Result<T, LedgerError>) -> bool {
    matches!(result, Err(LedgerError::Database(_) | LedgerError::Stopped))
}

impl Executed {
    /// Sends the reply, once it is known whether the transaction was committed. Returns a callback if the task that
    /// waits for it is on another thread.
    pub(crate) fn reply(self, committed: bool, directory: &Shared) -> Option<Callback> {
        match self.outcome {
            Outcome::Charge(pending, call) => {
                let result = after_commit(pending.result, committed);
                if result.is_ok() {
                    release(directory, &call);
                }
                drop(call); // before the task that waits changes its own reference
                pending.reply.send(result)
            }
            Outcome::Settled(pending, charge) => {
                let result = after_commit(pending.result, committed);
                if result.is_ok() {
                    release(directory, &charge.call);
                }
                pending.reply.send(result)
            }
            Outcome::Released(result, CallLabel { id, account_id }) => {
                if let Err(error) = after_commit(result, committed) {
                    tracing::error!(
                        %error,
                        call = id,
                        account.id = account_id,
                        "recording a call that was not charged failed; it is missing from the history"
                    );
                }
                None
            }
            Outcome::Replayed(result, CallLabel { id, account_id }) => {
                if let Err(error) = after_commit(result, committed) {
                    tracing::warn!(
                        %error,
                        call = id,
                        account.id = account_id,
                        "recording a retry failed; it is missing from the trace of its call"
                    );
                }
                None
            }
            Outcome::Grant(pending) => pending.send(committed),
            Outcome::Account(pending) => pending.send(committed),
            Outcome::Key(pending) => pending.send(committed),
            Outcome::Project(pending) => pending.send(committed),
            Outcome::BudgetSet(pending) => pending.send(committed),
            Outcome::BudgetRemoved(pending) => pending.send(committed),
            Outcome::Model(pending) => pending.send(committed),
            Outcome::Limit(pending) => pending.send(committed),
            Outcome::Violations(pending) => pending.send(committed),
            Outcome::Swept(pending) => pending.send(committed),
            Outcome::Done(pending) => pending.send(committed),
        }
    }
}

impl<T: Send + 'static> PendingReply<T> {
    fn send(self, committed: bool) -> Option<Callback> {
        self.reply.send(after_commit(self.result, committed))
    }
}

fn after_commit<T>(result: Result<T, LedgerError>, committed: bool) -> Result<T, LedgerError> {
    match result {
        Ok(_) if !committed => Err(LedgerError::NotCommitted),
        other => other,
    }
}

/// Releases the hold of a call whose charge is committed, so that a later transaction that fails does not restore it.
fn release(directory: &Shared, call: &Call) {
    let directory = directory.read();
    directory.credit(&call.account_id).release(call.id);
}
