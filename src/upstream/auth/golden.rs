//! Snapshot tests of what token endpoints answer, in `fixtures/`. A new form is a new file.

use axum::http::StatusCode;

use super::{aws, http, token};
use crate::upstream::testing;

/// 2027-01-15T08:00:00Z.
const NOW: i64 = 1_800_000_000;

fn each(folder: &str, check: impl Fn(&str, &[u8])) {
    testing::for_each_fixture("auth", folder, check);
}

/// A response with a token → the header line and how long it is used.
#[test]
fn tokens() {
    each("tokens", |name, body| {
        let issued = token::issued(body, NOW).unwrap();
        let shown = format!("{}s\n{}", issued.lifetime.as_secs(), issued.value.line());
        insta::assert_snapshot!(name, shown.trim_end());
    });
}

/// A response of a source of credentials → whose they are and how long they are used, or what is wrong.
#[test]
fn credentials() {
    each("credentials", |name, body| {
        let shown = aws::issued(body, NOW).map_or_else(
            |why| format!("failure: {why}"),
            |issued| {
                let seconds = issued.lifetime.as_secs();
                format!("{seconds}s\n{}", issued.value.access_key_id)
            },
        );
        insta::assert_snapshot!(name, shown);
    });
}

/// A refusal → what the log says. The file name begins with the status.
#[test]
fn refusals() {
    each("refusals", |name, body| {
        let status = name.split('_').next().unwrap().parse().unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        let logged = http::refusal(status, body);
        assert!(!logged.contains("canary"), "{logged}");
        insta::assert_snapshot!(name, logged);
    });
}
