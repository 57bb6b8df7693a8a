//! The script that every step is: its keys, its arguments and what it answers.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value};

use super::link::Link;
use crate::base::rate::{Ceilings, Limit, Refusal, StoredReservation};

const CODE: &str = include_str!("minute.lua");
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(CODE));

/// Accounts are spread over so many parts, each with a mark that says its entries are all there.
pub const PARTITIONS: u64 = 64;

/// More than any sum of tokens is written as a float somewhere along the way.
const MOST_TOKENS: u64 = 1 << 50;

/// The keys of one account's minute with one model. The braces keep a partition on one server of a
/// cluster; what follows them may have any characters.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Minute {
    partition: u64,
    mark: String,
    times: String,
    counts: String,
}

impl Minute {
    pub fn of(account: &str, model: &str) -> Self {
        let partition = partition(account);
        Self {
            partition,
            mark: mark(partition),
            times: format!("tollgate:{{p{partition:02}}}:times:{account}:{model}"),
            counts: format!("tollgate:{{p{partition:02}}}:counts:{account}:{model}"),
        }
    }
}

pub fn mark(partition: u64) -> String {
    format!("tollgate:{{p{partition:02}}}:mark")
}

/// The same on every gateway and for all time, unlike the standard library's.
pub fn partition(account: &str) -> u64 {
    let hash = account.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3_u64)
    });
    // The low bits of this hash mix less than the high ones.
    (hash >> 32) % PARTITIONS
}

/// An entry's name.
pub fn entry(call: u64, step: u32) -> String {
    format!("{call}.{step}")
}

/// One run of the script.
pub struct Run {
    pub partition: u64,
    keys: Vec<String>,
    args: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Admitted {
        at_ms: u64,
    },
    Refused(Refusal),
    /// It was taken back before it was admitted.
    Buried,
    /// What should be there is not.
    Lost,
    Done,
    /// The partition's entries are all there.
    Sound,
    /// They may not be; the doubt goes by this name.
    Doubtful(String),
    /// Nothing was done: entries of this partition may be missing.
    Unmarked,
    /// Nothing was done: the server's clock was set.
    ClockWasSet,
    /// The server's clock, in milliseconds since 1970.
    Time(i64),
}

impl Answer {
    /// Why a step that was not done has the connection looked at.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ClockWasSet => "its clock was set",
            _ => "it may have forgotten the last minute",
        }
    }
}

impl Run {
    pub fn admit(minute: &Minute, entry: &str, need: u64, ceilings: Ceilings) -> Self {
        Self::on(minute, "admit", entry).and([
            need.min(MOST_TOKENS),
            ceilings.requests.into(),
            ceilings.tokens.into(),
        ])
    }

    /// Settles `before`, admitted at `before_at_ms`, with what it used, and admits `entry`.
    pub fn renew(
        minute: &Minute,
        (before, before_at_ms, used): (&str, u64, u64),
        (entry, need): (&str, u64),
        ceilings: Ceilings,
    ) -> Self {
        let mut run = Self::admit(minute, entry, need, ceilings);
        "renew".clone_into(&mut run.args[0]);
        run.args.push(before.to_owned());
        run.and([before_at_ms, used.min(MOST_TOKENS)])
    }

    pub fn settle(minute: &Minute, entry: &str, tokens: u64) -> Self {
        Self::on(minute, "settle", entry).and([tokens.min(MOST_TOKENS)])
    }

    pub fn cancel(minute: &Minute, entry: &str) -> Self {
        Self::on(minute, "cancel", entry)
    }

    /// Cancels an entry for good, though a try to admit it may still be on its way.
    pub fn bury(minute: &Minute, entry: &str) -> Self {
        Self::on(minute, "bury", entry)
    }

    pub fn time(partition: u64) -> Self {
        Self {
            partition,
            keys: vec![mark(partition)],
            args: vec!["time".to_owned()],
        }
    }

    pub fn doubt(partition: u64, name: u64) -> Self {
        Self {
            partition,
            keys: vec![mark(partition)],
            args: vec!["doubt".to_owned(), name.to_string()],
        }
    }

    /// Doubts entries that are all there, because the clock that they go by was set.
    pub fn doubt_clock(partition: u64, name: u64) -> Self {
        let mut run = Self::doubt(partition, name);
        run.args.push("clock".to_owned());
        run
    }

    pub fn restore(partition: u64, doubt: &str) -> Self {
        Self {
            partition,
            keys: vec![mark(partition)],
            args: vec!["restore".to_owned(), doubt.to_owned()],
        }
    }

    /// A window whose entries follow.
    pub fn window(&mut self, minute: Minute) {
        self.keys.extend([minute.times, minute.counts]);
    }

    /// An entry of the window that was named last.
    pub fn entry(&mut self, entry: String, kept: &StoredReservation) {
        let window = u64::try_from(self.keys.len() / 2).unwrap_or(0);
        let tokens = kept.tokens.min(MOST_TOKENS);
        let [window, at_ms, tokens, age_ms] =
            [window, kept.at_ms, tokens, kept.age_ms].map(|n| n.to_string());
        self.args.extend([window, entry, at_ms, tokens, age_ms]);
    }

    fn on(minute: &Minute, step: &str, entry: &str) -> Self {
        Self {
            partition: minute.partition,
            keys: vec![
                minute.mark.clone(),
                minute.times.clone(),
                minute.counts.clone(),
            ],
            args: vec![step.to_owned(), entry.to_owned()],
        }
    }

    fn and<const N: usize>(mut self, numbers: [u64; N]) -> Self {
        self.args.extend(numbers.map(|number| number.to_string()));
        self
    }

    /// The same at another time than the server's.
    #[cfg(test)]
    pub fn at(mut self, now_ms: u64) -> Self {
        self.args[0] = format!("{}@{now_ms}", self.args[0]);
        self
    }

    /// Asks the server; the whole script goes along only where the server does not have it yet.
    pub async fn ask(&self, link: &Link) -> RedisResult<Answer> {
        self.ask_within(link, None).await
    }

    /// The same, to be done only while the server's clock shows a time between these two.
    pub async fn ask_within(&self, link: &Link, times: Option<(i64, i64)>) -> RedisResult<Answer> {
        let command = self.command("EVALSHA", SCRIPT.get_hash(), times);
        let answer = match link.ask(&command).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.ask(&self.command("EVAL", CODE, times)).await
            }
            answer => answer,
        };
        self.read(answer?)
    }

    fn command(&self, name: &str, script: &str, times: Option<(i64, i64)>) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key);
        }
        let (step, others) = self.args.split_first().expect("every run has a step");
        match times {
            Some((earliest, latest)) => {
                command.arg(format!("{step}~{}:{}", earliest.max(0), latest.max(0)));
            }
            None => {
                command.arg(step);
            }
        }
        for text in others {
            command.arg(text);
        }
        command
    }

    fn read(&self, answer: Value) -> RedisResult<Answer> {
        let words = match answer {
            Value::Array(words) => words,
            Value::ServerError(error) => return Err(error.into()),
            _ => Vec::new(),
        };
        let word = match words.first() {
            Some(Value::BulkString(bytes)) => std::str::from_utf8(bytes).unwrap_or_default(),
            _ => "",
        };
        let numbers: Vec<i64> = words
            .iter()
            .filter_map(|word| match word {
                Value::Int(number) => Some(*number),
                _ => None,
            })
            .collect();
        Ok(match (word, &numbers[..]) {
            ("admitted", [at_ms]) => Answer::Admitted {
                at_ms: at_ms.unsigned_abs(),
            },
            ("refused", [too_many, requests, tokens, wait]) => {
                let limit = if *too_many == 1 {
                    Limit::Requests
                } else {
                    Limit::Tokens
                };
                Answer::Refused(self.refusal(limit, *requests, *tokens, *wait))
            }
            ("buried", _) => Answer::Buried,
            ("lost", _) => Answer::Lost,
            ("done", _) => Answer::Done,
            ("sound", _) => Answer::Sound,
            ("unmarked", _) => Answer::Unmarked,
            ("clock", _) => Answer::ClockWasSet,
            ("time", [ms]) => Answer::Time(*ms),
            ("doubtful", _) => match words.get(1) {
                Some(Value::BulkString(name)) => {
                    Answer::Doubtful(String::from_utf8_lossy(name).into_owned())
                }
                _ => Answer::Unmarked,
            },
            _ => {
                return Err(RedisError::from((
                    ErrorKind::UnexpectedReturnType,
                    "the script's answer makes no sense",
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
            limit,
            ceilings,
            requests_left: left(ceilings.requests, requests),
            tokens_left: left(ceilings.tokens, tokens),
            wait_ms: u64::try_from(wait).ok(),
        }
    }
}
