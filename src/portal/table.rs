//! Tables: the box in which a wide one scrolls, and the labels of cells. On a phone each row of a table becomes a card, in
//! which a cell stands beside the name of its column (`attr(data-label)` in `portal.css`).
//!
//! Pages write plain tables; [`labelled`] adds the labels when the frame is put around a page. It relies on the markup
//! being `maud`'s: `<` is escaped in texts and in attributes, so every `<` begins a tag, comment or declaration.

use maud::{Markup, PreEscaped, html};

/// A box that scrolls sideways if the table is too wide for the screen.
pub(crate) fn scrolled(label: &str, table: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) { (table) }
    }
}

/// The page's content with a `data-label` in each body cell that has none, by the header cell of its column.
pub(crate) fn labelled(content: &Markup) -> Markup {
    let html = content.0.as_str();
    let mut out = String::with_capacity(html.len() + html.len() / 4);
    let mut table = Columns::default();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find('>').map_or(rest.len(), |end| end + 1);
        let (tag, after) = rest.split_at(end);
        match table.on_tag(tag, after) {
            Some(label) => {
                out.push_str(&tag[..tag.len() - 1]);
                out.push_str(" data-label=\"");
                out.push_str(label);
                out.push_str("\">");
            }
            None => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    PreEscaped(out)
}

/// The header cells of the current table, and the position in its rows.
#[derive(Default)]
struct Columns {
    labels: Vec<String>,
    in_head: bool,
    column: usize,
}

impl Columns {
    /// Follows the tables. Returns the label of a cell that begins with this tag and needs one.
    fn on_tag(&mut self, tag: &str, after: &str) -> Option<&str> {
        let name = tag[1..].split([' ', '>']).next().unwrap_or_default();
        match name {
            "table" => self.labels.clear(),
            "thead" => self.in_head = true,
            "/thead" => self.in_head = false,
            "tr" => {
                self.column = 0;
                if self.in_head {
                    self.labels.clear();
                }
            }
            "th" if self.in_head => self.labels.push(text_until(after, "</th>")),
            "th" | "td" => {
                let column = self.column;
                let span = attribute(tag, " colspan=\"");
                self.column += span.and_then(|span| span.parse().ok()).unwrap_or(1);
                let is_plain =
                    name == "td" && span.is_none() && attribute(tag, " data-label=\"").is_none();
                let label = self.labels.get(column).map(String::as_str);
                return label.filter(|label| is_plain && !label.is_empty());
            }
            _ => {}
        }
        None
    }
}

fn attribute<'a>(tag: &'a str, begin: &str) -> Option<&'a str> {
    let (_, value) = tag.split_once(begin)?;
    value.split('"').next()
}

/// The visible text up to the closing tag; empty for a header that only screen readers get, such as "Actions".
fn text_until(html: &str, closing: &str) -> String {
    let inner = html.split(closing).next().unwrap_or_default();
    if inner.contains("class=\"unseen\"") {
        return String::new();
    }
    let pieces = inner.split('<').enumerate();
    let texts = pieces.map(|(number, piece)| match piece.split_once('>') {
        Some((_, text)) if number > 0 => text,
        _ => piece,
    });
    texts.collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn cells_get_the_names_of_their_columns() {
        let table = html! {
            p title="<td>" { "A <td> b" }
            table {
                thead { tr {
                    th scope="col" { "When" }
                    th.number scope="col" { "Cost " span.muted { "(\"$\" & more)" } }
                    th scope="col" { span.unseen { "Actions" } }
                } }
                tbody {
                    tr { th scope="row" { "today" } td.number { "$1" } td { button { "Go" } } }
                    tr { th scope="row" { "before" } td data-label="Price" { "$2" } td {} }
                    tr { td colspan="2" { "none" } td { "x" } }
                }
                tfoot { tr { td { "sum" } td { "$3" } } }
            }
            table { tbody { tr { td { "bare" } } } }
        };
        let shown = labelled(&table).into_string();
        let cells: Vec<&str> = shown
            .split("<td")
            .skip(1)
            .map(|cell| cell.split("</td>").next().unwrap())
            .collect();
        assert_eq!(
            cells,
            [
                " class=\"number\" data-label=\"Cost (&quot;$&quot; &amp; more)\">$1",
                "><button>Go</button>",
                " data-label=\"Price\">$2",
                ">",
                " colspan=\"2\">none",
                ">x",
                " data-label=\"When\">sum",
                " data-label=\"Cost (&quot;$&quot; &amp; more)\">$3",
                ">bare",
            ]
        );
        let without = shown
            .replace(" data-label=\"When\"", "")
            .replace(" data-label=\"Cost (&quot;$&quot; &amp; more)\"", "");
        assert_eq!(without, table.into_string());
    }
}
