//! Runs of the Lua script `window.lua`: their keys, their arguments and the script's replies.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value};

use super::link::Link;
use crate::base::rate::{Ceilings, Limit, Refusal, StoredReservation, WindowOf};

const CODE: &str = include_str!("window.lua");
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(CODE));

/// Number of partitions over which accounts are spread. Each has a mark, a key that proves that its entries are
/// complete.
pub(crate) const PARTITIONS: u64 = 64;

/// Token counts are capped here, because Lua's numbers are floats: larger sums would not stay exact integers.
const MAX_TOKENS: u64 = 1 << 50;

/// The Redis keys of one window.
///
/// The braces are a hash tag, which keeps a partition on one server of a cluster; the text after them may have any
/// characters.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct WindowKeys {
    partition: u64,
    mark: String,
    times: String,
    counts: String,
}

impl WindowKeys {
    pub(crate) fn of(account: &str, model: &str) -> Self {
        let partition = partition(account);
        Self {
            partition,
            mark: mark(partition),
            times: format!("tollgate:{{p{partition:02}}}:times:{account}:{model}"),
            counts: format!("tollgate:{{p{partition:02}}}:counts:{account}:{model}"),
        }
    }
}

/// The key of a partition's mark.
pub(crate) fn mark(partition: u64) -> String {
    format!("tollgate:{{p{partition:02}}}:mark")
}

/// The partition of an account, by its FNV-1a hash. Every gateway and version must compute the same one, which the
/// standard library's hash does not guarantee.
pub(crate) fn partition(account: &str) -> u64 {
    let hash = account.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3_u64)
    });
    // The low bits of this hash are less well mixed than the high ones.
    (hash >> 32) % PARTITIONS
}

/// The name of an entry in a window.
pub(crate) fn entry(call: u64, step: u32) -> String {
    format!("{call}.{step}")
}

/// One run of the script.
pub(crate) struct Run {
    pub partition: u64,
    keys: Vec<String>,
    /// The operation's name and its arguments.
    args: Vec<String>,
}

/// What the script replied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The entry is in the window, since this time of the server's clock.
    Admitted {
        at_ms: u64,
    },
    Refused(Refusal),
    /// The entry was buried before this attempt to admit it arrived.
    Buried,
    /// The entry of the step before is missing although it should still be in the window.
    Lost,
    Done,
    /// The partition's entries are complete.
    Sound,
    /// The partition's entries may be incomplete; the doubt has this name.
    Doubtful(String),
    /// Nothing was changed: entries of this partition may be missing.
    Unmarked,
    /// Nothing was changed: the server's clock has jumped.
    ClockJumped,
    /// The server's clock, in milliseconds since 1970.
    Time(i64),
}

impl Reply {
    /// Why an operation that changed nothing closes the connection, as a text for the operator.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::ClockJumped => "its clock jumped",
            _ => "it may have lost entries of the windows",
        }
    }
}

impl Run {
    /// Admits an entry, or refuses it.
    pub(crate) fn admit(window: &WindowKeys, entry: &str, need: u64, ceilings: Ceilings) -> Self {
        Self::on(window, "admit", entry).and([
            need.min(MAX_TOKENS),
            ceilings.requests.into(),
            ceilings.tokens.into(),
        ])
    }

    /// Settles the entry `before`, admitted at `before_at_ms`, with its usage, and admits `entry` as the next step.
    pub(crate) fn renew(
        window: &WindowKeys,
        (before, before_at_ms, used): (&str, u64, u64),
        (entry, need): (&str, u64),
        ceilings: Ceilings,
    ) -> Self {
        let mut run = Self::admit(window, entry, need, ceilings);
        "renew".clone_into(&mut run.args[0]);
        run.args.push(before.to_owned());
        run.and([before_at_ms, used.min(MAX_TOKENS)])
    }

    /// Replaces an entry's reserved tokens by those that were used.
    pub(crate) fn settle(window: &WindowKeys, entry: &str, tokens: u64) -> Self {
        Self::on(window, "settle", entry).and([tokens.min(MAX_TOKENS)])
    }

    /// Removes an entry. An attempt to admit it that arrives later would add it again; see [`Self::bury`].
    pub(crate) fn cancel(window: &WindowKeys, entry: &str) -> Self {
        Self::on(window, "cancel", entry)
    }

    /// Replaces an entry by a tombstone, so that an attempt to admit it that arrives later is refused.
    pub(crate) fn bury(window: &WindowKeys, entry: &str) -> Self {
        Self::on(window, "bury", entry)
    }

    /// Reads the clock of the partition's server.
    pub(crate) fn time(partition: u64) -> Self {
        Self {
            partition,
            keys: vec![mark(partition)],
            args: vec!["time".to_owned()],
        }
    }

    /// Puts the partition in doubt under this name if its entries may be incomplete and it is not in doubt already.
    pub(crate) fn doubt(partition: u64, name: u64) -> Self {
        Self {
            partition,
            keys: vec![mark(partition)],
            args: vec!["doubt".to_owned(), name.to_string()],
        }
    }

    /// Puts the partition in doubt even if its entries are complete, because the clock of their times has jumped.
    pub(crate) fn doubt_clock(partition: u64, name: u64) -> Self {
        let mut run = Self::doubt(partition, name);
        run.args.push("clock".to_owned());
        run
    }

    /// Adds entries to a partition in doubt and ends the doubt, if it still has this name.
    pub(crate) fn restore(partition: u64, doubt: &str) -> Self {
        Self {
            partition,
            keys: vec![mark(partition)],
            args: vec!["restore".to_owned(), doubt.to_owned()],
        }
    }

    /// Adds a window to a restore; its entries follow.
    pub(crate) fn add_window(&mut self, window: WindowKeys) {
        self.keys.extend([window.times, window.counts]);
    }

    /// Adds an entry to the window that was added last.
    pub(crate) fn add_entry(&mut self, entry: String, stored: &StoredReservation) {
        let window = u64::try_from(self.keys.len() / 2).unwrap_or(0);
        let tokens = stored.tokens.min(MAX_TOKENS);
        let [window, at_ms, tokens, age_ms] =
            [window, stored.at_ms, tokens, stored.age_ms].map(|n| n.to_string());
        self.args.extend([window, entry, at_ms, tokens, age_ms]);
    }

    fn on(window: &WindowKeys, operation: &str, entry: &str) -> Self {
        Self {
            partition: window.partition,
            keys: vec![
                window.mark.clone(),
                window.times.clone(),
                window.counts.clone(),
            ],
            args: vec![operation.to_owned(), entry.to_owned()],
        }
    }

    fn and<const N: usize>(mut self, numbers: [u64; N]) -> Self {
        self.args.extend(numbers.map(|number| number.to_string()));
        self
    }

    /// Makes the script use this time in place of the server's clock.
    #[cfg(test)]
    pub(crate) fn at(mut self, now_ms: u64) -> Self {
        self.args[0] = format!("{}@{now_ms}", self.args[0]);
        self
    }

    /// Runs the script by its hash; sends its source only if the server does not have it yet.
    pub(crate) async fn send(&self, link: &Link) -> RedisResult<Reply> {
        self.send_within(link, None).await
    }

    /// Like [`Self::send`], but changes nothing unless the server's clock shows a time between these two.
    pub(crate) async fn send_within(
        &self,
        link: &Link,
        times: Option<(i64, i64)>,
    ) -> RedisResult<Reply> {
        let command = self.command("EVALSHA", SCRIPT.get_hash(), times);
        let reply = match link.send(&command).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.send(&self.command("EVAL", CODE, times)).await
            }
            reply => reply,
        };
        self.parse(reply?)
    }

    fn command(&self, name: &str, script: &str, times: Option<(i64, i64)>) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key);
        }
        let (operation, others) = (self.args.split_first()).expect("a run has an operation");
        match times {
            Some((earliest, latest)) => {
                command.arg(format!("{operation}~{}:{}", earliest.max(0), latest.max(0)));
            }
            None => {
                command.arg(operation);
            }
        }
        for text in others {
            command.arg(text);
        }
        command
    }

    fn parse(&self, reply: Value) -> RedisResult<Reply> {
        let fields = match reply {
            Value::Array(fields) => fields,
            Value::ServerError(error) => return Err(error.into()),
            _ => Vec::new(),
        };
        let name = match fields.first() {
            Some(Value::BulkString(bytes)) => std::str::from_utf8(bytes).unwrap_or_default(),
            _ => "",
        };
        let numbers: Vec<i64> = fields
            .iter()
            .filter_map(|field| match field {
                Value::Int(number) => Some(*number),
                _ => None,
            })
            .collect();
        Ok(match (name, &numbers[..]) {
            ("admitted", [at_ms]) => Reply::Admitted {
                at_ms: at_ms.unsigned_abs(),
            },
            ("refused", [too_many, requests, tokens, wait]) => {
                let limit = if *too_many == 1 {
                    Limit::Requests
                } else {
                    Limit::Tokens
                };
                Reply::Refused(self.refusal(limit, *requests, *tokens, *wait))
            }
            ("buried", _) => Reply::Buried,
            ("lost", _) => Reply::Lost,
            ("done", _) => Reply::Done,
            ("sound", _) => Reply::Sound,
            ("unmarked", _) => Reply::Unmarked,
            ("clock", _) => Reply::ClockJumped,
            ("time", [ms]) => Reply::Time(*ms),
            ("doubtful", _) => match fields.get(1) {
                Some(Value::BulkString(name)) => {
                    Reply::Doubtful(String::from_utf8_lossy(name).into_owned())
                }
                _ => Reply::Unmarked,
            },
            _ => {
                return Err(RedisError::from((
                    ErrorKind::UnexpectedReturnType,
                    "unexpected reply of the script",
                )));
            }
        })
    }

    fn refusal(&self, limit: Limit, requests: i64, tokens: i64, wait: i64) -> Refusal {
        let ceiling = |at: usize| self.args.get(at).and_then(|n| n.parse().ok()).unwrap_or(0);
        let ceilings = Ceilings {
            requests: ceiling(3),
            tokens: ceiling(4),
        };
        let left = |ceiling: u32, used: i64| {
            ceiling.saturating_sub(u32::try_from(used.max(0)).unwrap_or(u32::MAX))
        };
        Refusal {
            of: WindowOf::Account,
            limit,
            ceilings,
            requests_left: left(ceilings.requests, requests),
            tokens_left: left(ceilings.tokens, tokens),
            wait_ms: u64::try_from(wait).ok(),
        }
    }
}
