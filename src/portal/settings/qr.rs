//! QR codes as inline SVG: one path, in black on white whatever the theme is, because cameras need the contrast.

use std::fmt::Write as _;

use maud::{Markup, html};
use qrcode::{Color, EcLevel, QrCode};

/// Modules of the white border that readers need.
const BORDER: usize = 4;

/// The QR code of a text; empty if the text is too long for one.
pub(super) fn code(text: &str, label: &str) -> Markup {
    let Ok(code) = QrCode::with_error_correction_level(text, EcLevel::M) else {
        return html! {};
    };
    let size = code.width() + 2 * BORDER;
    html! {
        svg.qr viewBox={ "0 0 " (size) " " (size) } role="img" aria-label=(label) {
            rect width=(size) height=(size) fill="#fff" {}
            path d=(path(&code)) fill="#000" shape-rendering="crispEdges" {}
        }
    }
}

/// A rectangle for each run of dark modules in a row.
fn path(code: &QrCode) -> String {
    let mut path = String::new();
    for y in 0..code.width() {
        let mut x = 0;
        while x < code.width() {
            let run = (x..code.width()).take_while(|x| code[(*x, y)] == Color::Dark);
            let length = run.count();
            if length > 0 {
                let (left, top) = (x + BORDER, y + BORDER);
                let _ = write!(path, "M{left} {top}h{length}v1h-{length}z");
            }
            x += length.max(1);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the modules back from the path.
    #[test]
    fn every_dark_module_is_in_the_path() {
        let code = QrCode::with_error_correction_level("otpauth://totp/a?secret=B", EcLevel::M);
        let code = code.unwrap();
        let width = code.width();
        let mut found = vec![Color::Light; width * width];
        let path = path(&code);
        for run in path.split('M').skip(1) {
            let (left, rest) = run.split_once(' ').unwrap();
            let (top, rest) = rest.split_once('h').unwrap();
            let length = rest.split_once('v').unwrap().0;
            let [x, y, length] = [left, top, length].map(|text| text.parse::<usize>().unwrap());
            for x in x..x + length {
                found[(y - BORDER) * width + x - BORDER] = Color::Dark;
            }
        }
        assert_eq!(found, code.to_colors());
    }
}
