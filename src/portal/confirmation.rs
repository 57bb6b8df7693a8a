//! Confirmations: what a form has done, shown once on the next page, with a button that undoes it where that is possible.
//!
//! A confirmation is in a cookie until that page is shown. It is signed with the token of the session, so that no other
//! host of the domain can put a text or a button into a page of ours.

use axum::{
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use maud::{Markup, html};
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::{
    cookies::{self, Kind, Token},
    layout,
    session::token_field,
};

/// The longest cookie that is set. Browsers ignore those of more than 4,096 bytes with name and attributes.
const MAX_COOKIE: usize = 3_800;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confirmation {
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undo: Option<Undo>,
}

/// The form that undoes what was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Undo {
    path: String,
    fields: Vec<(String, String)>,
}

impl Confirmation {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            undo: None,
        }
    }

    /// With a button that submits these fields to this path.
    pub(crate) fn undone_by(mut self, path: &str, fields: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.undo = Some(Undo {
            path: path.to_owned(),
            fields: fields.iter().map(owned).collect(),
        });
        self
    }

    /// The redirect after a form. The page it leads to shows the confirmation.
    pub(crate) fn redirect(&self, to: &str, token: &Token, secure: bool) -> Response {
        let mut response = layout::redirect(to);
        let headers = response.headers_mut();
        headers.append(header::SET_COOKIE, self.set(token, secure));
        response
    }

    /// The cookie. If the fields of the undo form are too long for one, it has the text alone.
    fn set(&self, token: &Token, secure: bool) -> HeaderValue {
        let mut value = self.signed(token);
        if value.len() > MAX_COOKIE {
            value = Self::new(&self.text).signed(token);
        }
        cookies::set(Kind::Confirmation, &value, secure)
    }

    fn signed(&self, token: &Token) -> String {
        let content = serde_json::to_vec(self).expect("a confirmation is plain JSON");
        let proof = hmac::sign(&key(token), &content);
        let parts = [content.as_slice(), proof.as_ref()];
        let [content, proof] = parts.map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
        format!("{content}.{proof}")
    }

    fn presented(headers: &HeaderMap, token: &Token, secure: bool) -> Option<Self> {
        let value = cookies::presented(headers, Kind::Confirmation, secure)?;
        let (content, proof) = value.split_once('.')?;
        let [content, proof] =
            [content, proof].map(|part| BASE64_URL_SAFE_NO_PAD.decode(part).ok());
        let content = content?;
        hmac::verify(&key(token), &content, &proof?).ok()?;
        serde_json::from_slice(&content).ok()
    }
}

fn key(token: &Token) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.secret().reveal().as_bytes())
}

/// The confirmation that a request carries, to be shown on the page that responds to it.
#[derive(Clone)]
pub(crate) struct Pending {
    confirmation: Confirmation,
    token: Token,
    secure: bool,
}

impl Pending {
    pub(crate) fn of(headers: &HeaderMap, token: &Token, secure: bool) -> Option<Self> {
        Some(Self {
            confirmation: Confirmation::presented(headers, token, secure)?,
            token: token.clone(),
            secure,
        })
    }

    pub(crate) fn shown(&self) -> Markup {
        let Confirmation { text, undo } = &self.confirmation;
        html! {
            div.notice.done role="status" {
                p { (text) }
                @if let Some(undo) = undo {
                    form method="post" action=(undo.path) {
                        (token_field(&self.token))
                        @for (name, value) in &undo.fields { input type="hidden" name=(name) value=(value); }
                        button.quiet type="submit" { "Undo" }
                    }
                }
            }
        }
    }

    /// The header that deletes the cookie with the page that shows it.
    pub(crate) fn forget(&self) -> HeaderValue {
        cookies::forget(Kind::Confirmation, self.secure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returned(response: &Response) -> HeaderMap {
        let cookie = response.headers().get(header::SET_COOKIE).unwrap();
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(pair).unwrap())])
    }

    #[test]
    fn a_confirmation_is_shown_to_the_session_that_caused_it_and_to_no_other() {
        let token = Token::generate();
        let done = Confirmation::new("Key “a” disabled; 100 %.")
            .undone_by("/portal/keys/key_1/enable", &[("state", "on")]);
        let response = done.redirect("/portal/keys", &token, true);
        assert_eq!(response.headers()[header::LOCATION], "/portal/keys");
        let headers = returned(&response);
        let pending = Pending::of(&headers, &token, true).unwrap();
        assert_eq!(pending.confirmation, done);
        let shown = pending.shown().into_string();
        assert!(shown.contains("Key “a” disabled; 100 %."), "{shown}");
        assert!(
            shown.contains(r#"action="/portal/keys/key_1/enable""#),
            "{shown}"
        );
        assert!(shown.contains(r#"name="state" value="on""#), "{shown}");
        assert!(Pending::of(&headers, &Token::generate(), true).is_none());
        assert!(Pending::of(&HeaderMap::new(), &token, true).is_none());
    }

    #[test]
    fn a_confirmation_whose_undo_form_is_too_long_for_a_cookie_is_shown_without_it() {
        let token = Token::generate();
        let model = |at: usize| (format!("model:vendor-model-{at}"), "on".to_owned());
        for (models, undone) in [(40, true), (400, false)] {
            let fields: Vec<_> = (0..models).map(model).collect();
            let fields: Vec<_> = fields.iter().map(|(name, on)| (&**name, &**on)).collect();
            let done = Confirmation::new("Saved.").undone_by("/portal/keys/key_1", &fields);
            let response = done.redirect("/portal/keys", &token, true);
            assert!(response.headers()[header::SET_COOKIE].len() < 4_096);
            let pending = Pending::of(&returned(&response), &token, true).unwrap();
            let shown = pending.shown().into_string();
            assert!(shown.contains("Saved."), "{shown}");
            assert_eq!(shown.contains("Undo"), undone, "{models}");
        }
    }

    #[test]
    fn a_changed_confirmation_is_ignored() {
        let token = Token::generate();
        let cookie = Confirmation::new("Saved.").set(&token, false);
        let text = cookie.to_str().unwrap().split(';').next().unwrap();
        let other = BASE64_URL_SAFE_NO_PAD.encode(r#"{"text":"Lost."}"#);
        let proof = text.split_once('.').unwrap().1;
        let name = text.split_once('=').unwrap().0;
        for wrong in [
            format!("{name}={other}.{proof}"),
            format!("{name}={other}"),
            format!("{name}=."),
        ] {
            let headers =
                HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(wrong).unwrap())]);
            assert!(Pending::of(&headers, &token, false).is_none());
        }
    }
}
