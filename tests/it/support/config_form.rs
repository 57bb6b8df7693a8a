//! The console's forms for models, providers, deployments and aliases.

use super::portal::{Browser, Seen};

pub const PAGE: &str = "/portal/console/config";
pub const MODELS: &str = "/portal/console/config/models";
/// The form of `svc-standard`.
pub const FORM: &str = "/portal/console/config/models/edit?name=svc-standard";

/// The fields of the form of the last page, with some of them replaced.
pub fn filled<'a>(page: &'a str, replaced: &[(&'a str, &'a str)]) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let unescaped = |text: &str| {
        let text = text.replace("&quot;", "\"").replace("&lt;", "<");
        text.replace("&gt;", ">").replace("&amp;", "&")
    };
    let form = page.split_once("<form class=\"stack\"").unwrap().1;
    let form = form.split_once("</form>").unwrap().0;
    for input in form.split("name=\"").skip(1) {
        let (name, rest) = input.split_once('"').unwrap();
        let tag = rest.split_once('>').unwrap();
        let value = if let Some((_, value)) = tag.0.split_once("value=\"") {
            value.split('"').next().unwrap()
        } else if let Some((_, chosen)) = rest
            .split_once("\" selected>")
            .filter(|_| rest.starts_with("><option"))
        {
            chosen.split('<').next().unwrap()
        } else {
            tag.1.split("</textarea>").next().unwrap()
        };
        fields.push((name.to_owned(), unescaped(value)));
    }
    fields.retain(|(name, _)| name != "do" && name != "token");
    for (name, value) in replaced {
        fields.retain(|(known, _)| known != name);
        fields.push(((*name).to_owned(), (*value).to_owned()));
    }
    fields
}

/// Sends a form's fields for a preview or to apply them.
pub async fn post(browser: &Browser, path: &str, fields: &[(String, String)], step: &str) -> Seen {
    let mut all: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    all.push(("do", step));
    browser.post(path, &all).await
}

/// Opens the form of an entry, changes fields and applies.
pub async fn change(browser: &Browser, form: &str, path: &str, replaced: &[(&str, &str)]) -> Seen {
    let page = browser.get(form).await;
    let fields = filled(page.assert_page(), replaced);
    post(browser, path, &fields, "apply").await
}
