//! The time as answers say it, written once a second.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::{BufMut as _, BytesMut};

thread_local! {
    static SHOWN: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

pub fn put(buffer: &mut BytesMut) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let second = now.map_or(0, |now| now.as_secs());
    SHOWN.with_borrow_mut(|(shown, text)| {
        if *shown != second || text.is_empty() {
            *shown = second;
            *text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
        buffer.put_slice(text.as_bytes());
    });
}
