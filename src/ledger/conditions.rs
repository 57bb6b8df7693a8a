//! Builds the `WHERE` clauses of page queries, in the dialects of SQLite and PostgreSQL.

use super::{CallsPage, DEFAULT_PROJECT, Outcome, SeenCalls};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sql {
    Lite,
    Postgres,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
}

/// A `WHERE` clause and its parameters.
#[derive(Debug)]
pub(crate) struct Conditions {
    sql: Sql,
    /// Begins with `WHERE`; empty if there is no condition.
    pub text: String,
    pub values: Vec<Value>,
    /// The column before the time in the order of the rows: see [`Self::only`].
    leading: Option<&'static str>,
}

impl Conditions {
    /// Conditions for a page of calls.
    pub(crate) fn of_calls(sql: Sql, page: &CallsPage<'_>) -> Self {
        let mut wanted = Self::none(sql);
        if let Some(account_id) = page.account_id {
            let placeholder = wanted.value(Value::Text(account_id.to_owned()));
            wanted.only("account_id", &placeholder);
        }
        wanted.and_named(page);
        if let Some(seen) = page.seen {
            let seen = wanted.seen(seen);
            wanted.and(&seen);
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
                // Redundant, but lets the planner use the partial index of these outcomes.
                wanted.and("outcome <> 'answered'");
            }
        }
        // Of an end and a cursor only the tighter one, because an index scan begins at one bound.
        let before = page
            .before
            .filter(|(ms, _)| page.to_ms.is_none_or(|to| *ms < to));
        match (before, page.to_ms) {
            (Some((ended_ms, id)), _) => {
                let id = i64::try_from(id.0).unwrap_or(i64::MAX);
                wanted.and_before("ended_at_ms", ended_ms, Value::Number(id));
            }
            (None, Some(to)) => wanted.and_time("<", to),
            (None, None) => {}
        }
        if let Some(from) = page.from_ms {
            wanted.and_time(">=", from);
        }
        wanted
    }

    /// Adds the filters that no index serves. Their equality is hidden from the planner, which expects few matches of it
    /// and would read and sort all.
    fn and_named(&mut self, page: &CallsPage<'_>) {
        let session = self.sql.session();
        for (column, name) in [
            ("key_id", page.key_id),
            ("model", page.model),
            ("project_id", page.project_id),
            ("member_id", page.member_id),
            ("upstream", page.upstream),
            (session, page.session),
        ] {
            let Some(name) = name else { continue };
            let placeholder = self.value(Value::Text(name.to_owned()));
            // The default project has no ID in calls.
            let absent = if column == "project_id" && name == DEFAULT_PROJECT {
                "true"
            } else {
                "false"
            };
            self.and(&format!("coalesce({column} = {placeholder}, {absent})"));
        }
    }

    /// A further condition: that a member sees the call. Its parameters are added to those there are.
    pub(crate) fn sees(&mut self, seen: &SeenCalls) -> String {
        format!("AND {}", self.seen(seen))
    }

    fn seen(&mut self, seen: &SeenCalls) -> String {
        let projects = seen.project_ids.iter().map(|id| ("project_id", id));
        let columns = [("member_id", &seen.member_id)].into_iter().chain(projects);
        let each: Vec<_> = columns
            .map(|(column, id)| format!("{column} = {}", self.value(Value::Text(id.clone()))))
            .collect();
        format!("coalesce({}, false)", each.join(" OR "))
    }

    /// Conditions for the daily sums that tell within which times a page's calls lie, so that a page of a rarely used
    /// key does not read all calls of its account. `None` without an account and a key, model or project.
    pub(crate) fn of_sums(sql: Sql, page: &CallsPage<'_>) -> Option<Self> {
        let named = page.key_id.or(page.model).or(page.project_id);
        let (account_id, _) = page.account_id.zip(named)?;
        let mut wanted = Self::none(sql);
        for (column, name) in [
            ("account_id", Some(account_id)),
            ("key_id", page.key_id),
            ("model", page.model),
            ("project_id", page.project_id),
        ] {
            let Some(name) = name else { continue };
            let placeholder = wanted.value(Value::Text(name.to_owned()));
            wanted.and(&format!("{column} = {placeholder}"));
        }
        Some(wanted)
    }

    /// A query for the first and the last time of the selected sums; yields NULLs if there are none.
    pub(crate) fn first_and_last(&self) -> String {
        let (first, conditions) = (self.sql.first_ms(), &self.text);
        format!("SELECT {first}, max(last_ended_at_ms) FROM usage_days {conditions}")
    }

    /// The `ORDER BY` clause.
    pub(crate) fn newest_first(&self, time: &str) -> String {
        let columns = self.leading.into_iter().chain([time, "id"]);
        let columns: Vec<String> = columns.map(|column| format!("{column} DESC")).collect();
        format!("ORDER BY {}", columns.join(", "))
    }

    /// Conditions for accounts whose ID begins with a text, or whose email or name contains it.
    pub(crate) fn of_accounts(sql: Sql, text: &str, before: Option<(i64, String)>) -> Self {
        let mut wanted = Self::none(sql);
        if !text.is_empty() {
            let (text, like) = (escape_like(text), sql.like());
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
            leading: None,
        }
    }

    /// Selects the rows of one account or outcome through the index that has them in order of time.
    ///
    /// Expecting many matches, PostgreSQL would rather scan all calls from the newest on, which goes far if there were
    /// no matches lately. Ordering by this column first, which only the right index provides, prevents that, provided
    /// that the planner does not see that there is a single value: hence `= ANY (ARRAY[…])`.
    fn only(&mut self, column: &'static str, value: &str) {
        self.and(&match self.sql {
            Sql::Lite => format!("{column} = {value}"),
            Sql::Postgres => format!("{column} = ANY (ARRAY[{value}])"),
        });
        self.leading = Some(column);
    }

    fn and(&mut self, condition: &str) {
        let keyword = if self.text.is_empty() {
            "WHERE "
        } else {
            " AND "
        };
        self.text.push_str(keyword);
        self.text.push_str(condition);
    }

    /// Selects the rows after a cursor, newest first. The time has a condition of its own, where an index scan can
    /// begin.
    fn and_before(&mut self, column: &str, time: i64, id: Value) {
        let (time, id) = (self.value(Value::Number(time)), self.value(id));
        self.and(&format!(
            "{column} <= {time} AND ({column} < {time} OR id < {id})"
        ));
    }

    fn and_time(&mut self, comparison: &str, ms: i64) {
        let ms = self.value(Value::Number(ms));
        self.and(&format!("ended_at_ms {comparison} {ms}"));
    }

    /// Adds a parameter and returns its placeholder.
    fn value(&mut self, value: Value) -> String {
        self.values.push(value);
        let placeholder = match self.sql {
            Sql::Lite => '?',
            Sql::Postgres => '$',
        };
        format!("{placeholder}{}", self.values.len())
    }
}

impl Sql {
    /// The case-insensitive `LIKE`.
    fn like(self) -> &'static str {
        match self {
            Self::Lite => "LIKE",
            Self::Postgres => "ILIKE",
        }
    }

    /// The session of a call, as its coding agent named it.
    fn session(self) -> &'static str {
        match self {
            Self::Lite => "json_extract(detail, '$.agent.session')",
            Self::Postgres => "detail -> 'agent' ->> 'session'",
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

/// Escapes the wildcards of `LIKE`.
fn escape_like(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for ch in text.chars() {
        if matches!(ch, '%' | '_' | '\\') {
            escaped.push('\\');
        }
        escaped.push(ch);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::CallId;

    #[test]
    fn no_filters_select_everything() {
        let calls = Conditions::of_calls(Sql::Postgres, &CallsPage::default());
        let accounts = Conditions::of_accounts(Sql::Lite, "", None);
        assert_eq!((calls.text.as_str(), accounts.text.as_str()), ("", ""));
    }

    #[test]
    fn names_are_parameters() {
        let page = CallsPage {
            account_id: Some("acct_1"),
            outcome: Some(Outcome::Stopped),
            before: Some((7, CallId(5))),
            from_ms: Some(3),
            to_ms: Some(9),
            ..CallsPage::default()
        };
        let wanted = Conditions::of_calls(Sql::Postgres, &page);
        assert_eq!(
            wanted.text,
            "WHERE account_id = ANY (ARRAY[$1]) AND outcome = 'stopped' AND outcome <> 'answered' \
             AND ended_at_ms <= $2 AND (ended_at_ms < $2 OR id < $3) AND ended_at_ms >= $4"
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
    fn of_a_cursor_and_an_end_the_tighter_one_is_used() {
        let page = CallsPage {
            before: Some((9, CallId(5))),
            to_ms: Some(9),
            ..CallsPage::default()
        };
        let wanted = Conditions::of_calls(Sql::Lite, &page);
        assert_eq!(wanted.text, "WHERE ended_at_ms < ?1");
        assert_eq!(wanted.values, [Value::Number(9)]);
    }

    #[test]
    fn an_account_filter_orders_by_its_index() {
        let page = CallsPage {
            account_id: Some("acct_1"),
            key_id: Some("key_1"),
            from_ms: Some(3),
            to_ms: Some(9),
            ..CallsPage::default()
        };
        let wanted = Conditions::of_calls(Sql::Postgres, &page);
        assert_eq!(
            wanted.text,
            "WHERE account_id = ANY (ARRAY[$1]) AND coalesce(key_id = $2, false) \
             AND ended_at_ms < $3 AND ended_at_ms >= $4"
        );
        assert_eq!(
            wanted.newest_first("ended_at_ms"),
            "ORDER BY account_id DESC, ended_at_ms DESC, id DESC"
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
    fn wildcards_in_a_search_text_are_escaped() {
        let wanted = Conditions::of_accounts(Sql::Lite, r"a%b_c\", None);
        let values = [
            Value::Text(r"a\%b\_c\\%".into()),
            Value::Text(r"%a\%b\_c\\%".into()),
        ];
        assert_eq!(wanted.values, values);
    }
}
