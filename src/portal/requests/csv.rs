//! Requests as CSV: those that the list shows with the same filter, refused ones included, newest first.
//!
//! The file is read and sent in pieces, so that neither side holds it as a whole. It ends after [`csv::MAX_ROWS`] rows, or
//! after searching far for few; its last line then says so.

use std::{collections::HashMap, fmt::Write as _, sync::Arc};

use axum::{body::Body, extract::State, response::Response};
use futures_util::stream;

use super::{
    filter::{Filter, RequestsQuery},
    merged::{Listed, Of, Requests},
};
use crate::{
    backoffice::RefusedRequest,
    base::{money::NanoUsd, timestamp},
    gateway::Gateway,
    ledger::{Call, DEFAULT_PROJECT, Key, Project},
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
/// The last columns, which only refused requests have. New ones are added at the end, for programs that count them.
const REFUSED_COLUMNS: &str = ",status,code,message";

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
    // What is wrong with the query is said before the file begins.
    let times = Filter::read(&query)?.times;
    // The pieces are read one after another, so a period that ends now begins at the same time for all of them.
    let [(_, last), (_, from), (_, to)] = times.at(timestamp::now()).fields();
    let rows = Rows {
        gateway,
        query: RequestsQuery {
            last,
            from,
            to,
            ..query
        },
        reader,
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
    let name = format!("requests-{}", timestamp::day(timestamp::now()));
    Ok(csv::attachment(&name, Body::from_stream(pieces)))
}

/// The rows that are still to be sent.
struct Rows {
    gateway: Arc<Gateway>,
    /// Its cursor is the last row that was sent.
    query: RequestsQuery,
    reader: Reader,
    written: usize,
    searches: usize,
    is_begun: bool,
}

impl Rows {
    /// The next piece, and the rows after it.
    async fn piece(mut self) -> Result<(String, Option<Self>), PortalError> {
        let size = PIECE.min(csv::MAX_ROWS - self.written);
        let found = {
            let filter = Filter::read(&self.query)?;
            let (account_id, seen) = match &self.reader {
                Reader::Member {
                    account_id, sight, ..
                } => (Some(account_id), sight.calls()),
                Reader::Operator { account_id } => (account_id.as_ref(), None),
            };
            let of = Of {
                account_id: account_id.map(String::as_str),
                seen,
            };
            Requests::read(&self.gateway, &filter, of, size).await?
        };
        let next = found.next().map(|last| last.to_string());
        self.searches += usize::from(found.searched_to_ms.is_some());
        let mut text = self.head();
        let keys = self.gateway.ledger.keys_with_ids(found.key_ids()).await?;
        let keys: Keys = keys.into_iter().map(|key| (key.id.clone(), key)).collect();
        for listed in &found.rows {
            match listed {
                Listed::Call(call) => self.reader.write_call(&mut text, call, &keys),
                Listed::Refused(one) => self.reader.write_refused(&mut text, one, &keys),
            }
        }
        self.written += found.rows.len();
        let is_full = self.written >= csv::MAX_ROWS || self.searches > MAX_SEARCHES;
        let is_cut = next.is_some() && is_full;
        if is_cut {
            text.push_str(&self.cut_line());
        }
        let rest = next.is_some() && !is_cut;
        self.query.before = next;
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
        format!("{COLUMNS}{more}{REFUSED_COLUMNS}\r\n")
    }

    fn cut_line(&self) -> String {
        let text = format!(
            "The file ends here after {} rows; there may be older requests. Choose a shorter period.",
            self.written
        );
        format!("{}\r\n", field(&text))
    }
}

/// The keys of a piece by ID.
type Keys = HashMap<String, Key>;

impl Reader {
    /// The name of a key, which members see of some keys only.
    fn key_name<'a>(&self, keys: &'a Keys, id: &str) -> &'a str {
        let key = keys.get(id).filter(|key| match self {
            Self::Member { names, .. } => names.me.sees_key(key),
            Self::Operator { .. } => true,
        });
        key.map_or("", |key| &key.name)
    }

    fn project<'a>(&'a self, id: Option<&'a str>) -> &'a str {
        let id = id.unwrap_or(DEFAULT_PROJECT);
        match self {
            Self::Member { names, .. } => projects::name_of(&names.projects, id),
            Self::Operator { .. } => id,
        }
    }

    fn member<'a>(&'a self, id: Option<&'a str>) -> &'a str {
        let id = id.unwrap_or_default();
        match self {
            Self::Member { names, .. } => names.member(id),
            Self::Operator { .. } => id,
        }
    }

    fn write_call(&self, text: &mut String, call: &Call, keys: &Keys) {
        let payer = &call.payer;
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
            field(self.key_name(keys, &payer.key_id)),
            field(self.project(payer.project_id.as_deref())),
            field(self.member(payer.member_id.as_deref())),
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
        text.push_str(",,,\r\n");
    }

    /// A refused request has no call, no tokens and no cost.
    fn write_refused(&self, text: &mut String, one: &RefusedRequest, keys: &Keys) {
        let model = one.model.as_deref().unwrap_or_default();
        let _ = write!(
            text,
            "{},,{},{},{},{},{},,{},,refused,,0,0,0,0,{},,{},{}",
            timestamp::shown_ms(one.at_ms),
            field(&one.request_id),
            field(&one.key_id),
            field(self.key_name(keys, &one.key_id)),
            field(self.project(one.project_id.as_deref())),
            field(self.member(one.member_id.as_deref())),
            field(model),
            NanoUsd::default(),
            one.took_ms,
            timestamp::shown_ms(one.at_ms.saturating_sub(one.took_ms)),
        );
        if let Self::Operator { .. } = self {
            let _ = write!(text, ",{},,", field(&one.account_id));
        }
        let _ = write!(
            text,
            ",{},{},{}\r\n",
            one.status,
            field(&one.code),
            field(&one.message)
        );
    }
}

impl Names {
    /// The email of a person, or the ID of one who was removed.
    fn member<'a>(&'a self, id: &'a str) -> &'a str {
        self.people.get(id).map_or(id, String::as_str)
    }
}
