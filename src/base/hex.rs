//! Bytes in hexadecimal digits.

use std::fmt::Write as _;

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}"); // writing to a string cannot fail
    }
    text
}
