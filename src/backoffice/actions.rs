//! The audit trail of operator actions: append-only.

use super::{
    Backoffice, BackofficeError,
    sql::{Row, statement},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub at_ms: i64,
    /// The operator who did it.
    pub actor: String,
    /// The kind of action, e.g. `account.close`.
    pub what: String,
    /// The account, key or model that was changed.
    pub subject: String,
    /// The state before, as JSON.
    pub before: Option<String>,
    /// The state after, as JSON.
    pub after: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedAction {
    /// Rises with every action.
    pub seq: i64,
    pub action: Action,
}

macro_rules! actions_where {
    ($condition:literal) => {
        concat!(
            "SELECT seq, at_ms, actor, what, subject, value_before, value_after
             FROM backoffice_actions WHERE ",
            $condition
        )
    };
}

impl Backoffice {
    /// Records an action under an ID; does nothing if one with this ID is recorded already.
    pub(crate) async fn record_once(
        &self,
        id: &str,
        action: &Action,
    ) -> Result<(), BackofficeError> {
        let insert = statement(
            "INSERT INTO backoffice_actions
                 (id, at_ms, actor, what, subject, value_before, value_after)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (id) DO NOTHING",
            [
                id.into(),
                action.at_ms.into(),
                action.actor.as_str().into(),
                action.what.as_str().into(),
                action.subject.as_str().into(),
                action.before.as_deref().into(),
                action.after.as_deref().into(),
            ],
        );
        self.run(vec![insert]).await?;
        Ok(())
    }

    /// A page of actions, newest first: all, or those of one subject. `before` is the last `seq` of the previous page.
    pub async fn actions_page(
        &self,
        subject: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<RecordedAction>, BackofficeError> {
        let before = before.unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let select = match subject {
            Some(subject) => statement(
                actions_where!("subject = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3"),
                [subject.into(), before.into(), limit.into()],
            ),
            None => statement(
                actions_where!("seq < $1 ORDER BY seq DESC LIMIT $2"),
                [before.into(), limit.into()],
            ),
        };
        let rows = self.run(vec![select]).await?;
        rows.into_iter().map(RecordedAction::read).collect()
    }
}

impl RecordedAction {
    fn read(mut row: Row) -> Result<Self, BackofficeError> {
        Ok(Self {
            seq: row.int()?,
            action: Action {
                at_ms: row.int()?,
                actor: row.text()?,
                what: row.text()?,
                subject: row.text()?,
                before: row.text_or_null()?,
                after: row.text_or_null()?,
            },
        })
    }
}
