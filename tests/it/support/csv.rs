//! A reader of CSV as RFC 4180 has it, to test what the gateway writes.

/// Rows of cells; an empty cell that is not quoted is `None`. Panics if the text is not CSV.
pub fn parse(text: &str) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut row = Vec::new();
        loop {
            let (cell, after) = cell(rest);
            row.push(cell);
            match after.as_bytes() {
                [b',', ..] => rest = &after[1..],
                [b'\n', ..] => {
                    rest = &after[1..];
                    break;
                }
                other => panic!("a line ends with {:?}", other.first()),
            }
        }
        rows.push(row);
    }
    rows
}

/// The first cell of a text, and what follows it.
fn cell(text: &str) -> (Option<String>, &str) {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).expect("a line has an end");
        let plain = &text[..end];
        assert!(!plain.contains(['"', '\r']), "{plain:?} is not quoted");
        return ((end > 0).then(|| plain.to_owned()), &text[end..]);
    };
    let mut cell = String::new();
    loop {
        let (part, after) = rest.split_once('"').expect("a quoted cell has an end");
        cell.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                cell.push('"');
                rest = after;
            }
            None => return (Some(cell), after),
        }
    }
}
