//! The filter of the lists of refused requests, in the portal and in the console. It is part of the URL, and of the links to
//! further pages.

use maud::{Markup, html};
use serde::Deserialize;

use super::times::Times;
use crate::{
    backoffice::RefusedPage,
    portal::{
        error::PortalError,
        paging,
        query::{non_empty, url},
    },
};

#[derive(Clone, Default, Deserialize)]
pub(crate) struct RefusedQuery {
    /// Of the console: an account's ID or email.
    pub account: Option<String>,
    pub key: Option<String>,
    pub model: Option<String>,
    pub status: Option<String>,
    pub code: Option<String>,
    pub last: Option<String>,
    pub from: Option<String>,
    pub to: Option<String>,
    pub before: Option<String>,
}

/// The validated query.
#[derive(Clone, Copy, Default)]
pub(crate) struct RefusedFilter<'a> {
    pub account: Option<&'a str>,
    pub key: Option<&'a str>,
    pub model: Option<&'a str>,
    pub status: Option<u16>,
    pub code: Option<&'a str>,
    pub times: Times,
    /// Time and ID of the last record of the page before.
    pub before: Option<(i64, &'a str)>,
}

impl<'a> RefusedFilter<'a> {
    pub(crate) fn read(query: &'a RefusedQuery) -> Result<Self, PortalError> {
        let (last, from, to) = (&query.last, &query.from, &query.to);
        Ok(Self {
            account: non_empty(query.account.as_ref()),
            key: non_empty(query.key.as_ref()),
            model: non_empty(query.model.as_ref()),
            status: read_status(query.status.as_ref())?,
            code: non_empty(query.code.as_ref()),
            times: Times::read(last.as_ref(), from.as_ref(), to.as_ref())?,
            before: match non_empty(query.before.as_ref()) {
                Some(text) => Some(cursor(text)?),
                None => None,
            },
        })
    }

    /// The page that it selects, of an account or of all.
    pub(crate) fn page(&self, account_id: Option<&'a str>, now: i64) -> RefusedPage<'a> {
        let (from_ms, to_ms) = self.times.bounds(now);
        RefusedPage {
            account_id,
            key_id: self.key,
            model: self.model,
            status: self.status,
            code: self.code,
            from_ms,
            to_ms,
            before: self.before,
            limit: paging::QUERIED,
            ..RefusedPage::default()
        }
    }

    /// Whether it selects all requests.
    pub(crate) fn is_any(&self) -> bool {
        self.fields().iter().all(|(_, value)| value.is_none())
    }

    /// The URL of a list with this filter: its first page, or the page after `last`.
    pub(crate) fn path(&self, page: &str, last: Option<(i64, &str)>) -> String {
        let before = last.map(|(at_ms, id)| format!("{at_ms}-{id}"));
        url(page, self.fields().into_iter().chain([("before", before)]))
    }

    fn fields(&self) -> Vec<(&'static str, Option<String>)> {
        let text = |value: Option<&str>| value.map(str::to_owned);
        let named = [
            ("account", text(self.account)),
            ("key", text(self.key)),
            ("model", text(self.model)),
            ("status", self.status.map(|status| status.to_string())),
            ("code", text(self.code)),
        ];
        named.into_iter().chain(self.times.fields()).collect()
    }
}

/// Reads an HTTP status.
pub(super) fn read_status(text: Option<&String>) -> Result<Option<u16>, PortalError> {
    let Some(text) = non_empty(text) else {
        return Ok(None);
    };
    let status = text.parse().ok().filter(|status| *status > 0);
    let wrong = || PortalError::Invalid("This is not an HTTP status.".into());
    status.map(Some).ok_or_else(wrong)
}

fn cursor(text: &str) -> Result<(i64, &str), PortalError> {
    let unknown = || PortalError::Invalid("There is no such page of requests.".into());
    let (at_ms, id) = text.split_once('-').ok_or_else(unknown)?;
    Ok((at_ms.parse().map_err(|_| unknown())?, id))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_links_keep_the_filter() {
        let query = RefusedQuery {
            key: Some("key_1".into()),
            model: Some("a&b".into()),
            status: Some("404".into()),
            code: Some(String::new()),
            from: Some("2026-11-16".into()),
            before: Some("5-refused_x".into()),
            ..RefusedQuery::default()
        };
        let filter = RefusedFilter::read(&query).unwrap();
        assert_eq!(filter.before, Some((5, "refused_x")));
        assert_eq!(
            filter.path("/l", Some((7, "refused_y"))),
            "/l?key=key%5F1&model=a%26b&status=404&from=2026%2D11%2D16T00%3A00%3A00Z&before=7%2Drefused%5Fy"
        );
        let none = RefusedFilter::default();
        assert!(none.is_any() && !filter.is_any());
        assert_eq!(none.path("/l", None), "/l");
        for status in ["0", "-1", "x", "99999"] {
            let query = RefusedQuery {
                status: Some(status.into()),
                ..RefusedQuery::default()
            };
            assert!(RefusedFilter::read(&query).is_err(), "{status}");
        }
    }
}
