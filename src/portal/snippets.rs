//! Ready-to-paste example requests in several languages, and commands for coding agents.

mod agents;

use maud::{Markup, html};

/// The model of the example requests; every plan includes it.
pub(crate) const FIRST_MODEL: &str = "svc-native-fast";

/// Examples with the given key or, if the key is not known any more, a placeholder.
pub(crate) fn all(origin: &str, key: &str) -> Markup {
    let requests = [
        ("curl", curl(origin, key)),
        ("Python", python(origin, key)),
        ("Node.js", node(origin, key)),
    ];
    html! {
        @for (at, (name, text)) in requests.iter().enumerate() {
            (snippet(name, &format!("request with {name}"), text, at == 0))
        }
        @for (name, text) in agents::all(origin, key) {
            (snippet(name, &format!("commands for {name}"), &text, false))
        }
    }
}

/// One text that can be folded and copied. `what` is what a screen reader calls it.
pub(crate) fn snippet(name: &str, what: &str, text: &str, is_open: bool) -> Markup {
    html! {
        details.snippet open[is_open] {
            summary { (name) }
            div.copyable {
                pre tabindex="0" aria-label={ "The " (what) } { code { (text) } }
                (copy_button("Copy", &format!("the {what}")))
            }
        }
    }
}

/// A button that copies the text beside it. It is hidden until a script enables it.
pub(crate) fn copy_button(verb: &str, what: &str) -> Markup {
    html! {
        button.quiet type="button" hidden data-copy {
            span data-copy-label { (verb) } span.unseen { " " (what) }
        }
    }
}

fn curl(origin: &str, key: &str) -> String {
    format!(
        r#"curl {origin}/v1/chat/completions \
  -H "Authorization: Bearer {key}" \
  -H "Content-Type: application/json" \
  -d '{{"model": "{FIRST_MODEL}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'"#
    )
}

fn python(origin: &str, key: &str) -> String {
    format!(
        r#"# pip install openai
from openai import OpenAI

client = OpenAI(base_url="{origin}/v1", api_key="{key}")
answer = client.chat.completions.create(
    model="{FIRST_MODEL}",
    messages=[{{"role": "user", "content": "Hello!"}}],
)
print(answer.choices[0].message.content)"#
    )
}

fn node(origin: &str, key: &str) -> String {
    format!(
        r#"// npm install openai
import OpenAI from "openai";

const client = new OpenAI({{ baseURL: "{origin}/v1", apiKey: "{key}" }});
const answer = await client.chat.completions.create({{
  model: "{FIRST_MODEL}",
  messages: [{{ role: "user", content: "Hello!" }}],
}});
console.log(answer.choices[0].message.content);"#
    )
}
