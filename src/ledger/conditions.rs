//! Which rows are wanted, put together from what was asked for. The two kinds of SQL differ in little.

use super::{CallsPage, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sql {
    Lite,
    Postgres,
}

/// What a parameter stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Number(i64),
}

/// Conditions and their parameters.
#[derive(Debug)]
pub struct Conditions {
    sql: Sql,
    /// From `WHERE` on; empty where everything is wanted.
    pub text: String,
    pub values: Vec<Value>,
    /// The column before the time in the order of the rows: see [`Self::only`].
    first: Option<&'static str>,
    /// The page begins after a line.
    goes_on: bool,
}

impl Conditions {
    /// The calls of a page, in PostgreSQL: in SQLite they are not found by conditions.
    pub fn of_calls(page: &CallsPage<'_>) -> Self {
        let mut wanted = Self::none(Sql::Postgres);
        if let Some(account_id) = page.account_id {
            let mark = wanted.value(Value::Text(account_id.to_owned()));
            wanted.only("account_id", &mark);
        }
        for (column, name) in [("key_id", page.key_id), ("model", page.model)] {
            let Some(name) = name else { continue };
            let mark = wanted.value(Value::Text(name.to_owned()));
            // PostgreSQL takes those of a key for few, and would look at all of them to sort them.
            wanted.and(&format!("coalesce({column} = {mark}, false)"));
        }
        if let Some(outcome) = page.outcome {
            let literal = format!("'{}'", outcome.as_str());
            let is_rare = outcome != Outcome::Answered;
            if is_rare && page.account_id.is_none() {
                wanted.only("outcome", &literal);
            } else {
                wanted.and(&format!("outcome = {literal}"));
            }
            if is_rare {
                // It says nothing new, but that the index of those can be used.
                wanted.and("outcome <> 'answered'");
            }
        }
        if let Some((ended_ms, id)) = page.before {
            let id = i64::try_from(id.0).unwrap_or(i64::MAX);
            wanted.and_before("ended_ms", ended_ms, Value::Number(id));
        }
        wanted
    }

    /// The sums of a page's calls, where they say within which times there are any: whoever asks for a
    /// key that is hardly used must not look through all calls of its account.
    pub fn of_sums(sql: Sql, page: &CallsPage<'_>) -> Option<Self> {
        let (account_id, _) = page.account_id.zip(page.key_id.or(page.model))?;
        let mut wanted = Self::none(sql);
        for (column, name) in [
            ("account_id", Some(account_id)),
            ("key_id", page.key_id),
            ("model", page.model),
        ] {
            let Some(name) = name else { continue };
            let mark = wanted.value(Value::Text(name.to_owned()));
            wanted.and(&format!("{column} = {mark}"));
        }
        Some(wanted)
    }

    /// Asks for the first and the last time of sums; for nothing where there are none.
    pub fn first_and_last(&self) -> String {
        let (first, conditions) = (self.sql.first_ms(), &self.text);
        format!("SELECT {first}, max(last_ms) FROM usage_days {conditions}")
    }

    /// No calls that ended before or after these times.
    pub fn within(&mut self, first_ms: i64, last_ms: i64) {
        let first = self.value(Value::Number(first_ms));
        self.and(&format!("ended_ms >= {first}"));
        // One bound is enough: an index begins at one, and not at the tighter of two.
        if !self.goes_on {
            let last = self.value(Value::Number(last_ms));
            self.and(&format!("ended_ms <= {last}"));
        }
    }

    /// In which order the rows are wanted.
    pub fn newest_first(&self, time: &str) -> String {
        let columns = self.first.into_iter().chain([time, "id"]);
        let columns: Vec<String> = columns.map(|column| format!("{column} DESC")).collect();
        format!("ORDER BY {}", columns.join(", "))
    }

    /// The accounts whose ID begins with a text, or whose e-mail or name has it somewhere.
    pub fn of_accounts(sql: Sql, text: &str, before: Option<(i64, String)>) -> Self {
        let mut wanted = Self::none(sql);
        if !text.is_empty() {
            let (text, like) = (literal(text), sql.like());
            let start = wanted.value(Value::Text(format!("{text}%")));
            let part = wanted.value(Value::Text(format!("%{text}%")));
            wanted.and(&format!(
                r"(id {like} {start} ESCAPE '\' OR email {like} {part} ESCAPE '\'
                     OR name {like} {part} ESCAPE '\')"
            ));
        }
        if let Some((created_at, id)) = before {
            wanted.and_before("created_at", created_at, Value::Text(id));
        }
        wanted
    }

    fn none(sql: Sql) -> Self {
        Self {
            sql,
            text: String::new(),
            values: Vec::new(),
            first: None,
            goes_on: false,
        }
    }

    /// Those of one account or outcome, by the index that has them in order.
    ///
    /// PostgreSQL would rather go through all calls, newest first, where it expects many to be of this one;
    /// and if there were none lately it would go far. An order that only the right index has keeps it from
    /// that, as long as it does not notice that there is one value.
    fn only(&mut self, column: &'static str, value: &str) {
        self.and(&format!("{column} = ANY (ARRAY[{value}])"));
        self.first = Some(column);
    }

    fn and(&mut self, condition: &str) {
        let word = if self.text.is_empty() {
            "WHERE "
        } else {
            " AND "
        };
        self.text.push_str(word);
        self.text.push_str(condition);
    }

    /// What comes after a line, newest first. The time stands alone as well: an index can begin there.
    fn and_before(&mut self, column: &str, time: i64, id: Value) {
        self.goes_on = true;
        let (time, id) = (self.value(Value::Number(time)), self.value(id));
        self.and(&format!(
            "{column} <= {time} AND ({column} < {time} OR id < {id})"
        ));
    }

    /// The mark that stands for it in the text.
    fn value(&mut self, value: Value) -> String {
        self.values.push(value);
        let mark = match self.sql {
            Sql::Lite => '?',
            Sql::Postgres => '$',
        };
        format!("{mark}{}", self.values.len())
    }
}

impl Sql {
    /// `LIKE` that takes small letters for capital ones.
    fn like(self) -> &'static str {
        match self {
            Self::Lite => "LIKE",
            Self::Postgres => "ILIKE",
        }
    }

    /// The first millisecond of the first day.
    fn first_ms(self) -> &'static str {
        match self {
            Self::Lite => "unixepoch(min(day)) * 1000",
            Self::Postgres => "(extract(epoch FROM min(day)::timestamp) * 1000)::bigint",
        }
    }
}

/// As `LIKE` reads it: with no sign that stands for others.
fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '%' | '_' | '\\') {
            literal.push('\\');
        }
        literal.push(letter);
    }
    literal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::CallId;

    #[test]
    fn everything_is_wanted_without_conditions() {
        let calls = Conditions::of_calls(&CallsPage::default());
        let accounts = Conditions::of_accounts(Sql::Lite, "", None);
        assert_eq!((calls.text.as_str(), accounts.text.as_str()), ("", ""));
    }

    #[test]
    fn names_are_parameters() {
        let page = CallsPage {
            account_id: Some("acct_1"),
            outcome: Some(Outcome::Stopped),
            before: Some((7, CallId(5))),
            ..CallsPage::default()
        };
        let mut wanted = Conditions::of_calls(&page);
        wanted.within(3, 9);
        assert_eq!(
            wanted.text,
            "WHERE account_id = ANY (ARRAY[$1]) AND outcome = 'stopped' AND outcome <> 'answered' \
             AND ended_ms <= $2 AND (ended_ms < $2 OR id < $3) AND ended_ms >= $4"
        );
        let values = [
            Value::Text("acct_1".into()),
            Value::Number(7),
            Value::Number(5),
            Value::Number(3),
        ];
        assert_eq!(wanted.values, values);
    }

    #[test]
    fn an_account_is_in_the_order_of_a_server() {
        let page = CallsPage {
            account_id: Some("acct_1"),
            key_id: Some("key_1"),
            ..CallsPage::default()
        };
        let mut wanted = Conditions::of_calls(&page);
        wanted.within(3, 9);
        assert_eq!(
            wanted.text,
            "WHERE account_id = ANY (ARRAY[$1]) AND coalesce(key_id = $2, false) \
             AND ended_ms >= $3 AND ended_ms <= $4"
        );
        assert_eq!(
            wanted.newest_first("ended_ms"),
            "ORDER BY account_id DESC, ended_ms DESC, id DESC"
        );
        let sums = Conditions::of_sums(Sql::Postgres, &page).unwrap();
        assert_eq!(sums.text, "WHERE account_id = $1 AND key_id = $2");
        let (account_id, key_id) = (None, None);
        for page in [
            CallsPage { account_id, ..page },
            CallsPage { key_id, ..page },
        ] {
            assert!(Conditions::of_sums(Sql::Postgres, &page).is_none());
        }
    }

    #[test]
    fn no_sign_of_a_text_stands_for_others() {
        let wanted = Conditions::of_accounts(Sql::Lite, r"a%b_c\", None);
        let values = [
            Value::Text(r"a\%b\_c\\%".into()),
            Value::Text(r"%a\%b\_c\\%".into()),
        ];
        assert_eq!(wanted.values, values);
    }
}
