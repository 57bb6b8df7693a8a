//! The playground's page: models and settings, the conversation, and below it the message to send.

use maud::{Markup, html};
use sha2::{Digest as _, Sha256};

use super::{
    charge::Charge,
    fields::{Exchange, Fields, MAX_MODELS, Turn, exchanges},
};
use crate::{
    base::{hex::hex, money::NanoUsd},
    catalog::{Model, Parameter},
    gateway::Gateway,
    portal::{
        assets,
        error::PortalError,
        form::once_field,
        formatting::{count, duration, money_rounded},
        layout::{self, Page, Place},
        rights::Right,
        session::SignedIn,
        snippets,
    },
};

/// What the page shows besides an empty form.
#[derive(Default)]
pub(super) struct View {
    pub fields: Fields,
    pub turns: Vec<Turn>,
    pub problem: Option<String>,
    /// The page of the request that was refused.
    pub refused: Option<String>,
}

/// Names the session, so that a conversation in the browser is shown to no other one. The form token differs in each page.
fn owner(me: &SignedIn) -> String {
    let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(me.session.digest).into();
    hex(&[a, b, c, d])
}

pub(super) async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    view: &View,
) -> Result<Page, PortalError> {
    let models = gateway.visible_models(me.account.plan);
    let balances = gateway.ledger.balances(&me.account.id).await?;
    let head = html! {
        link rel="stylesheet" href=(assets::path("playground.css"));
        @for script in ["playground-markdown.js", "playground-code.js", "playground-turns.js", "playground-request.js", "playground.js"] {
            script src=(assets::path(script)) defer {}
        }
    };
    let balance = me.may(Right::Billing).then_some(balances.balance);
    let charges = latest_charges(gateway, me, &view.turns).await?;
    let content = html! {
        h1 { "Playground" }
        (introduction(balance))
        form.playground #playground method="post" action="/portal/playground" data-token=(me.form_token())
            data-owner=(owner(me)) data-url=(gateway.portal.url) {
            (me.token_field())
            (once_field())
            input type="hidden" name="conversation" value=(conversation(&view.turns));
            div.setup {
                (model_field(models.iter().map(AsRef::as_ref), &view.fields))
                (settings(models.iter().map(AsRef::as_ref), &view.fields))
                (code())
            }
            section #conversation aria-label="Conversation" { (conversation_so_far(&view.turns, &charges)) }
            (composer(view))
        }
    };
    Ok(layout::page_with(
        me,
        Place::Playground,
        "Playground",
        &head,
        &content,
    ))
}

fn introduction(balance: Option<NanoUsd>) -> Markup {
    html! {
        p.muted {
            "Answers come from the API and are paid from "
            @match balance {
                Some(balance) => { "your balance of " (money_rounded(balance)) ". " },
                None => "the account's balance. ",
            }
            span hidden data-scripted {
                "The conversation stays in this tab until you clear it, close the tab or sign out. It is not stored here."
            }
        }
        noscript {
            p.muted {
                "An answer appears when it is complete, and the conversation is kept only in this page. With JavaScript, \
                 answers appear as they are written."
            }
        }
    }
}

/// The turns for the hidden field; empty without any.
fn conversation(turns: &[Turn]) -> String {
    if turns.is_empty() {
        return String::new();
    }
    serde_json::to_string(turns).unwrap_or_default()
}

fn model_field<'a>(models: impl Iterator<Item = &'a Model>, fields: &Fields) -> Markup {
    let chosen = match fields.model.as_str() {
        "" => snippets::FIRST_MODEL,
        model => model,
    };
    html! {
        div.models {
            label { "Model"
                select name="model" {
                    @for model in models {
                        option value=(model.id) selected[model.id == chosen] data-without=(not_taken(model).join(" "))
                            data-note=[note(model)] { (model.id) }
                    }
                }
            }
            button.quiet type="button" hidden data-add { "Compare with another model" }
        }
    }
}

/// The form's settings that a model does not take, by field name.
fn not_taken(model: &Model) -> Vec<&'static str> {
    let sampling = [
        Parameter::Temperature,
        Parameter::TopP,
        Parameter::MaxTokens,
        Parameter::Seed,
        Parameter::Stop,
    ];
    let dropped = sampling
        .into_iter()
        .filter(|parameter| model.drops(*parameter));
    let features = [("reasoning", "reasoning_effort"), ("json_mode", "json")];
    let missing = features
        .into_iter()
        .filter(|(feature, _)| !model.has_feature(feature));
    dropped
        .map(Parameter::as_str)
        .chain(missing.map(|(_, field)| field))
        .collect()
}

/// Says which settings a model does not take; `None` if it takes all.
fn note(model: &Model) -> Option<String> {
    let names: Vec<_> = not_taken(model).into_iter().map(setting_name).collect();
    (!names.is_empty()).then(|| format!("{} does not take {}.", model.id, names.join(", ")))
}

/// The label of a setting, by field name.
fn setting_name(field: &str) -> &str {
    match field {
        "temperature" => "temperature",
        "top_p" => "top P",
        "max_tokens" => "max tokens",
        "reasoning_effort" => "reasoning effort",
        "json" => "JSON mode",
        "stop" => "stop sequences",
        other => other,
    }
}

fn settings<'a>(models: impl Iterator<Item = &'a Model>, fields: &Fields) -> Markup {
    let is_set = [
        &fields.system,
        &fields.temperature,
        &fields.top_p,
        &fields.max_tokens,
        &fields.seed,
        &fields.stop,
        &fields.reasoning_effort,
        &fields.json,
    ];
    let is_open = is_set.iter().any(|field| !field.is_empty());
    html! {
        details.settings open[is_open] {
            summary { "Settings" }
            label { "System prompt"
                textarea name="system" rows="2" placeholder="You are a helpful assistant." { (fields.system) }
            }
            div.parameters {
                (number("Temperature", "temperature", &fields.temperature, ("0", "2", "any")))
                (number("Top P", "top_p", &fields.top_p, ("0", "1", "any")))
                (number("Max tokens", "max_tokens", &fields.max_tokens, ("1", "4294967295", "1")))
                (number("Seed", "seed", &fields.seed, ("-9007199254740991", "9007199254740991", "1")))
                label { "Reasoning effort"
                    select name="reasoning_effort" {
                        @for (value, name) in [("", "Model's default"), ("low", "Low"), ("medium", "Medium"), ("high", "High")] {
                            option value=(value) selected[fields.reasoning_effort == value] { (name) }
                        }
                    }
                }
                label { "Stop sequences " span.muted { "(one per line)" }
                    textarea name="stop" rows="1" { (fields.stop) }
                }
            }
            label.check {
                input type="checkbox" name="json" value="on" checked[!fields.json.is_empty()];
                " JSON mode (ask for JSON in the message too)"
            }
            p.muted data-notes {
                "Empty settings are not sent. "
                @for note in models.filter_map(note) { (note) " " }
            }
        }
    }
}

fn number(label: &str, name: &str, value: &str, (min, max, step): (&str, &str, &str)) -> Markup {
    html! {
        label { (label)
            input type="number" name=(name) value=(value) min=(min) max=(max) step=(step) autocomplete="off";
        }
    }
}

/// The request as code. It is written by the script, because it changes with every field.
fn code() -> Markup {
    html! {
        details.code hidden data-code {
            summary { "Code" }
            p.muted { "The next request as code. It takes your API key from the environment variable " code { "OPENAI_API_KEY" } "." }
            @for (id, name) in [("curl", "curl"), ("python", "Python"), ("node", "Node.js")] {
                div.snippet data-language=(id) {
                    (snippets::snippet(name, &format!("request with {name}"), "", id == "curl"))
                }
            }
        }
    }
}

/// The charges of the answers to the last message, in their order.
async fn latest_charges(
    gateway: &Gateway,
    me: &SignedIn,
    turns: &[Turn],
) -> Result<Vec<Option<Charge>>, PortalError> {
    let latest = exchanges(turns)
        .last()
        .map_or(&[][..], |latest| latest.answers);
    let mut charges = Vec::new();
    for answer in latest.iter().take(MAX_MODELS) {
        charges.push(match &answer.request {
            Some(request_id) => Charge::find(gateway, me, request_id).await?,
            None => None,
        });
    }
    Ok(charges)
}

/// The messages, each above the answers to it. `charges` are those of the last one.
fn conversation_so_far(turns: &[Turn], charges: &[Option<Charge>]) -> Markup {
    let mut all = exchanges(turns).peekable();
    html! {
        @while let Some(Exchange { question, answers }) = all.next() {
            @let charges = if all.peek().is_none() { charges } else { &[] };
            div.turn {
                article.message.question { h2 { "You" } p.text { (question) } }
                div.columns data-columns=(answers.len()) {
                    @for (column, answer) in answers.iter().enumerate() {
                        article.message.assistant {
                            h2 { (answer.model.as_deref().unwrap_or("Answer")) }
                            p.text { (answer.content) }
                            @if let Some(Some(charge)) = charges.get(column) { (cost(charge)) }
                        }
                    }
                }
            }
        }
    }
}

fn cost(charge: &Charge) -> Markup {
    html! {
        p.meta {
            @if charge.charged {
                (count(charge.input.into())) " tokens in, " (count(charge.output.into())) " out"
                @if charge.reasoning > 0 { " (" (count(charge.reasoning.into())) " reasoning)" }
                " · " a href=(charge.path) { (charge.cost) }
            } @else {
                "Nothing was charged: " a href=(charge.path) { (charge.outcome) }
            }
            " · " (duration(charge.took_ms)) " in total"
        }
    }
}

fn composer(view: &View) -> Markup {
    let is_new = view.turns.is_empty() && view.problem.is_none();
    let message = if is_new {
        "Tell me something about toll gates."
    } else {
        &view.fields.message
    };
    html! {
        div.composer {
            @if let Some(problem) = &view.problem {
                p.problem role="alert" {
                    (problem)
                    @if let Some(path) = &view.refused { " " a href=(path) { "See the request" } }
                }
            }
            p.status #playground-status role="status" {}
            label { "Message"
                textarea name="message" rows="2" required { (message) }
            }
            div.buttons {
                button.primary type="submit" { "Send" }
                button type="button" hidden data-stop { "Stop" }
                button type="button" hidden data-cancel { "Cancel editing" }
                button type="button" hidden data-clear { "Clear" }
                button type="button" hidden data-undo { "Undo" }
                @if !view.turns.is_empty() {
                    button type="submit" name="compare" value="on" formnovalidate data-plain { "Send the last message to this model too" }
                    a.button href="/portal/playground" data-plain { "New conversation" }
                }
                span.muted hidden data-scripted {
                    span.keys { "Ctrl + Enter sends. " }
                    "Stop hides the rest of an answer. The model still writes it, and you pay for all of it."
                }
            }
        }
        p.unseen #playground-spoken role="status" {}
    }
}
