//! Requests as CSV: those that the list shows with the same filter, newest first.
//!
//! The file is read and sent in pieces, so that neither side holds it as a whole. It ends after [`csv::MAX_ROWS`] rows, or
//! after searching far for few; its last line then says so.

use std::{collections::HashMap, fmt::Write as _, sync::Arc};

use axum::{body::Body, extract::State, response::Response};
use futures_util::stream;

use super::filter::{Cursor, Ended, Filter, RequestsQuery};
use crate::{
    base::timestamp,
    gateway::Gateway,
    ledger::{Call, CallId, CallsPage, Key, LedgerError, Project},
    portal::{
        csv::{self, field},
        error::PortalError,
        projects,
        query::ReadQuery,
        session::SignedIn,
        sight::Sight,
    },
};

const PIECE: usize = 1_000;
/// The most times that a file goes on where a search has found less than a piece.
const MAX_SEARCHES: usize = 50;
const COLUMNS: &str = "time,call ID,request ID,key ID,key name,project,member,session,model,routed model,outcome,\
    stream,input tokens,cached tokens,output tokens,reasoning tokens,cost USD,ms to first token,duration ms,started";
/// Further columns for operators.
const OPERATOR_COLUMNS: &str = ",account ID,upstream,failure";

/// For whom the file is.
pub(crate) enum Reader {
    Member {
        account_id: String,
        sight: Sight,
        names: Box<Names>,
    },
    /// Sees what customers do not, and IDs in place of names of projects and members.
    Operator { account_id: Option<String> },
}

/// What a member calls keys, projects and people.
pub(crate) struct Names {
    me: SignedIn,
    projects: Vec<Project>,
    /// Emails by ID.
    people: HashMap<String, String>,
}

pub(crate) async fn download(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<RequestsQuery>,
) -> Result<Response, PortalError> {
    let sight = Sight::of(&gateway, &me).await?;
    let query = RequestsQuery {
        account: None,
        upstream: None,
        member: query.member.filter(|_| me.is_owner()),
        ..query
    };
    let people = gateway.backoffice.people_of(&me.account.id).await?;
    let people = people.into_iter().map(|one| (one.id, one.email));
    let reader = Reader::Member {
        account_id: me.account.id.clone(),
        sight,
        names: Box::new(Names {
            projects: gateway.ledger.projects(&me.account.id).await?,
            people: people.collect(),
            me,
        }),
    };
    file(gateway, query, reader)
}

/// A file of the requests that a query selects.
pub(crate) fn file(
    gateway: Arc<Gateway>,
    query: RequestsQuery,
    reader: Reader,
) -> Result<Response, PortalError> {
    let filter = Filter::read(&query)?;
    if filter.ended == Ended::Refused {
        let problem = "Refused requests cost nothing and are not part of the CSV.";
        return Err(PortalError::Invalid(problem.into()));
    }
    let before = filter.before.map(Cursor::before_call);
    let now = timestamp::now();
    let rows = Rows {
        gateway,
        query,
        reader,
        now,
        before,
        written: 0,
        searches: 0,
        is_begun: false,
    };
    let pieces = stream::try_unfold(Some(rows), |rows| async {
        match rows {
            Some(rows) => Box::pin(rows.piece()).await.map(Some),
            None => Ok(None),
        }
    });
    let name = format!("requests-{}", timestamp::day(now));
    Ok(csv::attachment(&name, Body::from_stream(pieces)))
}

/// The rows that are still to be sent.
struct Rows {
    gateway: Arc<Gateway>,
    query: RequestsQuery,
    reader: Reader,
    now: i64,
    before: Option<(i64, CallId)>,
    written: usize,
    searches: usize,
    is_begun: bool,
}

impl Rows {
    /// The next piece, and the rows after it.
    async fn piece(mut self) -> Result<(String, Option<Self>), PortalError> {
        let limit = PIECE.min(csv::MAX_ROWS + 1 - self.written);
        let mut found = {
            let filter = Filter::read(&self.query)?;
            let (account_id, seen) = match &self.reader {
                Reader::Member {
                    account_id, sight, ..
                } => (Some(account_id), sight.calls()),
                Reader::Operator { account_id } => (account_id.as_ref(), None),
            };
            let page = CallsPage {
                account_id: account_id.map(String::as_str),
                seen,
                before: self.before,
                ..filter.page(self.now, limit)
            };
            self.gateway.ledger.calls_page(&page).await?
        };
        let next = found.next(limit);
        self.searches += usize::from(found.searched_to_ms.is_some());
        let is_full = self.written + found.calls.len() > csv::MAX_ROWS;
        found.calls.truncate(csv::MAX_ROWS - self.written);
        let mut text = self.head();
        let keys = self.keys(&found.calls).await?;
        for call in &found.calls {
            self.reader.write(&mut text, call, &keys);
        }
        self.written += found.calls.len();
        self.before = next;
        let is_cut = is_full || (next.is_some() && self.searches > MAX_SEARCHES);
        if is_cut {
            text.push_str(&self.cut_line());
        }
        let rest = next.is_some() && !is_cut;
        Ok((text, rest.then_some(self)))
    }

    fn head(&mut self) -> String {
        if std::mem::replace(&mut self.is_begun, true) {
            return String::new();
        }
        let more = match self.reader {
            Reader::Member { .. } => "",
            Reader::Operator { .. } => OPERATOR_COLUMNS,
        };
        format!("{COLUMNS}{more}\r\n")
    }

    fn cut_line(&self) -> String {
        let text = format!(
            "The file ends here after {} rows; there may be older requests. Choose a shorter period.",
            self.written
        );
        format!("{}\r\n", field(&text))
    }

    async fn keys(&self, calls: &[Call]) -> Result<HashMap<String, Key>, LedgerError> {
        let ids = calls.iter().map(|call| call.payer.key_id.as_str());
        let keys = self.gateway.ledger.keys_with_ids(ids).await?;
        Ok(keys.into_iter().map(|key| (key.id.clone(), key)).collect())
    }
}

impl Reader {
    fn write(&self, text: &mut String, call: &Call, keys: &HashMap<String, Key>) {
        let payer = &call.payer;
        let key = keys.get(&payer.key_id);
        let (key_name, project, member) = match self {
            Self::Member { names, .. } => (
                key.filter(|key| names.me.sees_key(key)),
                projects::name_of(&names.projects, payer.project()),
                payer.member_id.as_deref().map(|id| names.member(id)),
            ),
            Self::Operator { .. } => (key, payer.project(), payer.member_id.as_deref()),
        };
        let key_name = key_name.map_or("", |key| &key.name);
        let session = call
            .agent
            .as_deref()
            .and_then(|agent| agent.session.as_deref());
        let charged = call.charged;
        let usage = charged.map(|charged| charged.usage).unwrap_or_default();
        let first = call.first_byte_ms.filter(|_| call.stream);
        let first = first.map(|at| (at - call.admitted_ms).to_string());
        let _ = write!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            timestamp::shown_ms(call.ended_ms),
            call.id,
            field(&call.request_id),
            field(&payer.key_id),
            field(key_name),
            field(project),
            field(member.unwrap_or_default()),
            field(session.unwrap_or_default()),
            field(&call.model),
            field(&call.routed_model),
            call.outcome.as_str(),
            call.stream,
            usage.prompt,
            usage.cached,
            usage.completion,
            usage.reasoning,
            charged.map(|charged| charged.cost).unwrap_or_default(),
            first.unwrap_or_default(),
            call.ended_ms - call.admitted_ms,
            timestamp::shown_ms(call.admitted_ms),
        );
        if let Self::Operator { .. } = self {
            let _ = write!(
                text,
                ",{},{},{}",
                field(&call.account_id),
                field(call.upstream.as_deref().unwrap_or_default()),
                field(call.failure.as_deref().unwrap_or_default()),
            );
        }
        text.push_str("\r\n");
    }
}

impl Names {
    /// The email of a person, or the ID of one who was removed.
    fn member<'a>(&'a self, id: &'a str) -> &'a str {
        self.people.get(id).map_or(id, String::as_str)
    }
}
