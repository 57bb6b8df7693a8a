//! The question before something that cannot be undone: what would happen, the button that does it, and a way back.

use maud::{Markup, html};

pub(crate) struct Question<'a> {
    pub title: &'a str,
    /// What happens, and what stays.
    pub consequences: &'a str,
    /// Where the form is submitted to, with these hidden fields.
    pub path: &'a str,
    pub fields: &'a [(&'a str, &'a str)],
    /// The label of the button that does it.
    pub yes: &'a str,
    /// The label and the page of the link that does not.
    pub no: (&'a str, &'a str),
}

impl Question<'_> {
    /// The page's content. `token` is the hidden field with the form token.
    pub(crate) fn shown(&self, token: &Markup) -> Markup {
        let (no, back) = self.no;
        html! {
            h1 { (self.title) }
            p.measure { (self.consequences) }
            form.inline method="post" action=(self.path) {
                (token)
                @for (name, value) in self.fields { input type="hidden" name=(name) value=(value); }
                button.bad type="submit" { (self.yes) }
                a.button href=(back) { (no) }
            }
        }
    }
}
