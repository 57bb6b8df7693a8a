//! Lists that are shown page by page, newest first.

use maud::{Markup, html};

use crate::portal::{error::PortalError, query::non_empty};

pub(crate) const PAGE_SIZE: usize = 50;
/// How many rows to query for a page: one more than it shows tells whether an older page exists.
pub(crate) const QUERIED: usize = PAGE_SIZE + 1;

/// The cursor in the query: the last row of the page before. `what` is listed.
pub(crate) fn cursor<T>(
    text: Option<&String>,
    what: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, PortalError> {
    let Some(text) = non_empty(text) else {
        return Ok(None);
    };
    let unknown = || PortalError::Invalid(format!("There is no such page of {what}."));
    parse(text).map(Some).ok_or_else(unknown)
}

/// Parses a cursor: creation time and ID of the last row of the previous page.
pub(crate) fn position(text: &str) -> Option<(i64, String)> {
    let (created_at, id) = text.split_once('-')?;
    Some((created_at.parse().ok()?, id.to_owned()))
}

/// Cuts rows that were queried to a page. Returns its last row if an older page exists.
pub(crate) fn cut<T>(rows: &mut Vec<T>) -> Option<&T> {
    let more = rows.len() > PAGE_SIZE;
    rows.truncate(PAGE_SIZE);
    rows.last().filter(|_| more)
}

/// Links to the first page, unless it is shown, and to the next older one.
pub(crate) fn links(what: &str, newest: Option<&str>, older: Option<&str>) -> Markup {
    html! {
        nav.pages aria-label="Pages" {
            @if let Some(url) = newest { a href=(url) { "Newest " (what) } }
            @if let Some(url) = older { a rel="next" href=(url) { "Older " (what) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_parses_as_it_was_written() {
        assert_eq!(position("17-acct_a-b"), Some((17, "acct_a-b".into())));
        assert_eq!((position("17"), position("x-acct_a")), (None, None));
    }
}
