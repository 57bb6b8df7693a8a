//! The filter of a list of requests, or of refused requests only, in the portal and in the console. It is part of the URL,
//! and of the links to further pages.

use maud::{Markup, html};
use serde::Deserialize;

use super::times::{Last, Times};
use crate::{
    backoffice::RefusedPage,
    ledger::{CallId, CallsPage, Outcome},
    portal::{
        error::PortalError,
        query::{non_empty, url},
    },
};

#[derive(Clone, Default, Deserialize)]
pub(crate) struct RequestsQuery {
    /// Of the console: an account's ID or email, and a provider.
    pub account: Option<String>,
    pub upstream: Option<String>,
    pub key: Option<String>,
    pub model: Option<String>,
    pub project: Option<String>,
    pub member: Option<String>,
    pub session: Option<String>,
    /// `errors`, `refused`, or one outcome.
    pub outcome: Option<String>,
    /// Of the errors of refused requests.
    pub status: Option<String>,
    pub code: Option<String>,
    pub last: Option<String>,
    pub from: Option<String>,
    pub to: Option<String>,
    pub before: Option<String>,
}

/// How requests ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ended {
    #[default]
    Anyhow,
    /// In any way that nothing was charged for, refused ones included.
    Errors,
    /// Before a model was called.
    Refused,
    With(Outcome),
}

/// The validated query.
#[derive(Clone, Copy, Default)]
pub(crate) struct Filter<'a> {
    pub account: Option<&'a str>,
    pub upstream: Option<&'a str>,
    pub key: Option<&'a str>,
    pub model: Option<&'a str>,
    pub project: Option<&'a str>,
    pub member: Option<&'a str>,
    pub session: Option<&'a str>,
    pub ended: Ended,
    /// Of the error: only refused requests have it.
    pub status: Option<u16>,
    pub code: Option<&'a str>,
    pub times: Times,
    pub before: Option<Cursor<'a>>,
}

/// The last request of a page, after which the next page starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor<'a> {
    pub ended_ms: i64,
    pub id: RowId<'a>,
}

/// A row of the list. At the same time calls come before refused requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowId<'a> {
    Call(CallId),
    Refused(&'a str),
}

/// How the IDs of refused requests begin; no ID is only this.
const REFUSED_PREFIX: &str = "refused_";
const ERRORS: &str = "errors";
const REFUSED: &str = "refused";

impl Ended {
    fn parse(text: &str) -> Option<Self> {
        match text {
            ERRORS => Some(Self::Errors),
            REFUSED => Some(Self::Refused),
            text => Outcome::parse(text).map(Self::With),
        }
    }

    fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Anyhow => None,
            Self::Errors => Some(ERRORS),
            Self::Refused => Some(REFUSED),
            Self::With(outcome) => Some(outcome.as_str()),
        }
    }

    /// The options of a select field.
    pub(crate) fn options(self, label: impl Fn(Outcome) -> &'static str) -> Markup {
        html! {
            option value="" { "All" }
            option value=(ERRORS) selected[self == Self::Errors] { "Errors only" }
            option value=(REFUSED) selected[self == Self::Refused] { "Refused" }
            @for one in Outcome::ALL {
                option value=(one.as_str()) selected[self == Self::With(one)] { (label(one)) }
            }
        }
    }
}

impl<'a> Filter<'a> {
    pub(crate) fn read(query: &'a RequestsQuery) -> Result<Self, PortalError> {
        let ended = non_empty(query.outcome.as_ref()).map(|text| {
            let unknown = || PortalError::Invalid("There is no such outcome.".into());
            Ended::parse(text).ok_or_else(unknown)
        });
        let before = non_empty(query.before.as_ref()).map(|text| {
            let unknown = || PortalError::Invalid("There is no such page of requests.".into());
            Cursor::parse(text).ok_or_else(unknown)
        });
        let (last, from, to) = (&query.last, &query.from, &query.to);
        Ok(Self {
            account: non_empty(query.account.as_ref()),
            upstream: non_empty(query.upstream.as_ref()),
            key: non_empty(query.key.as_ref()),
            model: non_empty(query.model.as_ref()),
            project: non_empty(query.project.as_ref()),
            member: non_empty(query.member.as_ref()),
            session: non_empty(query.session.as_ref()),
            ended: ended.transpose()?.unwrap_or_default(),
            status: read_status(query.status.as_ref())?,
            code: non_empty(query.code.as_ref()),
            times: Times::read(last.as_ref(), from.as_ref(), to.as_ref())?,
            before: before.transpose()?,
        })
    }

    /// Reads the filter of a list of refused requests only, which has fewer fields.
    pub(crate) fn read_refused(query: &'a RequestsQuery) -> Result<Self, PortalError> {
        Ok(Self {
            upstream: None,
            project: None,
            member: None,
            session: None,
            ended: Ended::Anyhow,
            ..Self::read(query)?
        })
    }

    /// The page of calls that it selects.
    pub(crate) fn page(&self, now: i64, limit: usize) -> CallsPage<'a> {
        let (from_ms, to_ms) = self.times.bounds(now);
        CallsPage {
            account_id: self.account,
            key_id: self.key,
            model: self.model,
            project_id: self.project,
            member_id: self.member,
            session: self.session,
            upstream: self.upstream,
            outcome: match self.ended {
                Ended::With(outcome) => Some(outcome),
                Ended::Anyhow | Ended::Errors | Ended::Refused => None,
            },
            errors_only: self.ended == Ended::Errors,
            from_ms,
            to_ms,
            seen: None,
            before: self.before.map(Cursor::before_call),
            limit,
        }
    }

    /// The page of refused requests that it selects, of an account or of all.
    pub(crate) fn refused_page(
        &self,
        account_id: Option<&'a str>,
        now: i64,
        limit: usize,
    ) -> RefusedPage<'a> {
        let (from_ms, to_ms) = self.times.bounds(now);
        RefusedPage {
            account_id,
            key_id: self.key,
            model: self.model,
            project_id: self.project,
            member_id: self.member,
            status: self.status,
            code: self.code,
            from_ms,
            to_ms,
            seen: None,
            before: self.before.map(Cursor::before_refused),
            limit,
        }
    }

    /// Whether it selects no calls: they have a status and a code of their own only if they were refused.
    pub(crate) fn is_of_refused(&self) -> bool {
        self.ended == Ended::Refused || self.status.is_some() || self.code.is_some()
    }

    /// Whether it has a filter that the form does not show at first.
    pub(crate) fn is_narrow(&self) -> bool {
        let names = [self.project, self.member, self.session, self.code];
        names.iter().any(Option::is_some) || self.status.is_some()
    }

    /// Whether it selects all requests.
    pub(crate) fn is_any(&self) -> bool {
        self.fields().iter().all(|(_, value)| value.is_none())
    }

    /// The URL of the list with this filter: its first page, or the page after `last`.
    pub(crate) fn path(&self, page: &str, last: Option<Cursor<'_>>) -> String {
        let before = ("before", last.map(|last| last.to_string()));
        url(page, self.fields().into_iter().chain([before]))
    }

    fn fields(&self) -> Vec<(&'static str, Option<String>)> {
        let text = |value: Option<&str>| value.map(str::to_owned);
        let named = [
            ("account", text(self.account)),
            ("upstream", text(self.upstream)),
            ("key", text(self.key)),
            ("model", text(self.model)),
            ("project", text(self.project)),
            ("member", text(self.member)),
            ("session", text(self.session)),
            ("outcome", text(self.ended.as_str())),
            ("status", self.status.map(|status| status.to_string())),
            ("code", text(self.code)),
        ];
        named.into_iter().chain(self.times.fields()).collect()
    }

    /// Links that change the period, or show errors only, and keep the rest of the filter.
    pub(crate) fn presets(&self, list: &str) -> Markup {
        let chosen = |is: bool| is.then_some("true");
        let of = |times: Times| Filter { times, ..*self }.path(list, None);
        let ended = |ended: Ended| Filter { ended, ..*self }.path(list, None);
        html! {
            nav.choices aria-label="Period and errors" {
                ul {
                    li { a href=(of(Times::default())) aria-current=[chosen(self.times == Times::default())] { "All time" } }
                    @for last in Last::ALL {
                        @let times = Times { last: Some(last), ..Times::default() };
                        li { a href=(of(times)) aria-current=[chosen(self.times == times)] { (last.label()) } }
                    }
                }
                ul {
                    li { a href=(ended(Ended::Anyhow)) aria-current=[chosen(self.ended == Ended::Anyhow)] { "All outcomes" } }
                    li { a href=(ended(Ended::Errors)) aria-current=[chosen(self.ended == Ended::Errors)] { "Errors only" } }
                }
            }
        }
    }
}

/// Reads an HTTP status.
fn read_status(text: Option<&String>) -> Result<Option<u16>, PortalError> {
    let Some(text) = non_empty(text) else {
        return Ok(None);
    };
    let status = text.parse().ok().filter(|status| *status > 0);
    let wrong = || PortalError::Invalid("This is not an HTTP status.".into());
    status.map(Some).ok_or_else(wrong)
}

/// The fields for status and code of an error. All lists of requests have them.
pub(crate) fn error_inputs(status: Option<u16>, code: Option<&str>) -> Markup {
    html! {
        label { "Status of the error"
            input type="text" name="status" inputmode="numeric" pattern="[0-9]{3}" title="An HTTP status, e.g. 429"
                placeholder="All statuses" autocomplete="off" value=[status];
        }
        label { "Code of the error"
            input type="text" name="code" placeholder="All codes" autocomplete="off" value=[code];
        }
    }
}

impl<'a> Cursor<'a> {
    /// After the refused request with this time and ID; without an ID, after all of this time.
    pub(crate) fn after_refused(ended_ms: i64, id: &'a str) -> Self {
        let id = if id.is_empty() { REFUSED_PREFIX } else { id };
        Self {
            ended_ms,
            id: RowId::Refused(id),
        }
    }

    fn parse(text: &'a str) -> Option<Self> {
        let (ended_ms, id) = text.split_once('-')?;
        let id = if id.starts_with(REFUSED_PREFIX) {
            RowId::Refused(id)
        } else {
            RowId::Call(CallId::parse(id)?)
        };
        Some(Self {
            ended_ms: ended_ms.parse().ok()?,
            id,
        })
    }

    /// The cursor of the calls that follow.
    pub(crate) fn before_call(self) -> (i64, CallId) {
        match self.id {
            RowId::Call(id) => (self.ended_ms, id),
            RowId::Refused(_) => (self.ended_ms, CallId(0)),
        }
    }

    /// The cursor of the refused requests that follow.
    pub(crate) fn before_refused(self) -> (i64, &'a str) {
        match self.id {
            RowId::Call(_) => (self.ended_ms.saturating_add(1), ""),
            RowId::Refused(id) => (self.ended_ms, id),
        }
    }
}

impl std::fmt::Display for Cursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ended_ms = self.ended_ms;
        match self.id {
            RowId::Call(id) => write!(f, "{ended_ms}-{id}"),
            RowId::Refused(id) => write!(f, "{ended_ms}-{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_parses_as_it_was_written() {
        let cursor = Cursor {
            ended_ms: 1_800_000_000_007,
            id: RowId::Call(CallId(943_718_400_000_000_000)),
        };
        assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        let refused = Cursor::parse("7-refused_a").unwrap();
        assert_eq!(refused.to_string(), "7-refused_a");
        assert_eq!(refused.before_call(), (7, CallId(0)));
        assert_eq!(refused.before_refused(), (7, "refused_a"));
        assert_eq!(cursor.before_refused(), (1_800_000_000_008, ""));
        for wrong in [
            "",
            "-",
            "1-",
            "1-call_",
            "x-call_0000000000000",
            "call_0000000000000",
            "-1-call_0000000000000",
        ] {
            assert_eq!(Cursor::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn page_links_keep_the_filter() {
        let query = RequestsQuery {
            key: Some("key_1".into()),
            model: Some(" a&b=\"c ".into()),
            session: Some("s 1".into()),
            outcome: Some("errors".into()),
            status: Some("429".into()),
            code: Some("rpm_exceeded".into()),
            from: Some("2026-11-16T14:00".into()),
            before: Some(String::new()),
            ..RequestsQuery::default()
        };
        let filter = Filter::read(&query).unwrap();
        let last = Cursor {
            ended_ms: 5,
            id: RowId::Call(CallId(0)),
        };
        assert_eq!(
            filter.path("/portal/requests", Some(last)),
            "/portal/requests?key=key%5F1&model=a%26b%3D%22c&session=s%201&outcome=errors\
             &status=429&code=rpm%5Fexceeded&from=2026%2D11%2D16T14%3A00%3A00Z&before=5%2Dcall%5F0000000000000"
        );
        assert!(!filter.path("/list", None).contains("before"));
        let none = RequestsQuery::default();
        let none = Filter::read(&none).unwrap();
        assert!(none.is_any() && !filter.is_any());
        assert_eq!(none.path("/list", None), "/list");
        for status in ["0", "-1", "x", "99999"] {
            let query = RequestsQuery {
                status: Some(status.into()),
                ..RequestsQuery::default()
            };
            assert!(Filter::read(&query).is_err(), "{status}");
        }
    }

    #[test]
    fn page_links_of_refused_requests_keep_their_filter() {
        let query = RequestsQuery {
            key: Some("key_1".into()),
            model: Some("a&b".into()),
            status: Some("404".into()),
            code: Some(String::new()),
            from: Some("2026-11-16".into()),
            before: Some("5-refused_x".into()),
            // Only calls have these, or the list has no field for them.
            outcome: Some("errors".into()),
            session: Some("s".into()),
            upstream: Some("u".into()),
            project: Some("proj_1".into()),
            member: Some("person_1".into()),
            ..RequestsQuery::default()
        };
        let filter = Filter::read_refused(&query).unwrap();
        let page = filter.refused_page(None, 0, 1);
        assert_eq!(page.before, Some((5, "refused_x")));
        assert_eq!((page.project_id, page.member_id), (None, None));
        let last = Cursor::after_refused(7, "refused_y");
        assert_eq!(
            filter.path("/l", Some(last)),
            "/l?key=key%5F1&model=a%26b&status=404&from=2026%2D11%2D16T00%3A00%3A00Z&before=7%2Drefused%5Fy"
        );
        let all_of_then = Cursor::after_refused(7, "").to_string();
        let (at_ms, id) = Cursor::parse(&all_of_then).unwrap().before_refused();
        assert!(at_ms == 7 && id < "refused_0", "{all_of_then}");
        let none = Filter::default();
        assert_eq!(none.path("/l", None), "/l");
    }
}
