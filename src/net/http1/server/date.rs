//! The `date` header of responses, formatted at most once per second and thread.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::http::HeaderValue;
use bytes::{BufMut as _, BytesMut};

thread_local! {
    /// The second that was formatted last, and its text.
    static FORMATTED: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// Appends the current time.
pub(crate) fn put(buffer: &mut BytesMut) {
    with_text(|text| buffer.put_slice(text.as_bytes()));
}

/// The current time as the value of the header.
pub(crate) fn header_value() -> HeaderValue {
    with_text(|text| HeaderValue::from_str(text).expect("a date is ASCII"))
}

fn with_text<T>(reader: impl FnOnce(&str) -> T) -> T {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let second = now.map_or(0, |now| now.as_secs());
    FORMATTED.with_borrow_mut(|(formatted, text)| {
        if *formatted != second || text.is_empty() {
            *formatted = second;
            *text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
        reader(text)
    })
}
