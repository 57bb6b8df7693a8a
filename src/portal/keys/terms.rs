//! The fields of a form for what binds a key: project, expiry, models and its own limits.

use std::collections::HashMap;

use maud::{Markup, html};
use serde::Deserialize;

use crate::{
    base::timestamp,
    catalog::Plan,
    gateway::Gateway,
    ledger::{DEFAULT_PROJECT, Edit, Key, KeyChange, KeyTerms, Project},
    portal::projects::DEFAULT_NAME,
};

const DAY: i64 = 24 * 60 * 60;
/// The field of a model is its ID after this.
const MODEL_FIELD: &str = "model:";

/// The fields as they were sent. An empty one means that nothing is set.
#[derive(Default, Deserialize)]
pub(crate) struct TermsForm {
    #[serde(default)]
    project: String,
    #[serde(default)]
    expires: String,
    #[serde(default)]
    rpm: String,
    #[serde(default)]
    tpm: String,
    /// A field for each model that was checked.
    #[serde(flatten)]
    others: HashMap<String, String>,
}

/// The project and the terms that a form asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// `None` for the default project.
    pub project_id: Option<String>,
    pub terms: KeyTerms,
}

impl TermsForm {
    /// Checks the fields. `before` is the key to change: what it has already may stay, also a day that is over. An error
    /// is the message to show.
    pub(crate) fn checked(
        &self,
        gateway: &Gateway,
        projects: &[Project],
        before: Option<&Key>,
    ) -> Result<Wanted, String> {
        Ok(Wanted {
            project_id: project(&self.project, projects)?,
            terms: KeyTerms {
                expires_at: expiry(&self.expires, before)?,
                models: self.models(gateway)?,
                rpm: ceiling(&self.rpm, "Requests per minute")?,
                tpm: ceiling(&self.tpm, "Tokens per minute")?,
            },
        })
    }

    fn models(&self, gateway: &Gateway) -> Result<Option<Vec<String>>, String> {
        let fields = self.others.keys();
        let ids = fields.filter_map(|field| field.strip_prefix(MODEL_FIELD));
        let mut models: Vec<_> = ids.map(str::to_owned).collect();
        models.sort_unstable();
        let routes = gateway.routes();
        if models.iter().any(|id| routes.catalog.find(id).is_none()) {
            return Err("There is no such model.".into());
        }
        Ok((!models.is_empty()).then_some(models))
    }
}

impl Wanted {
    /// The change of a key that has these afterwards, and this name.
    pub(crate) fn into_change(self, name: &str) -> KeyChange {
        KeyChange {
            name: Some(name.to_owned()),
            project_id: edit(self.project_id),
            expires_at: edit(self.terms.expires_at),
            models: edit(self.terms.models),
            rpm: edit(self.terms.rpm),
            tpm: edit(self.terms.tpm),
        }
    }
}

fn edit<T>(wanted: Option<T>) -> Edit<T> {
    wanted.map_or(Edit::Clear, Edit::Set)
}

fn project(id: &str, projects: &[Project]) -> Result<Option<String>, String> {
    if id.is_empty() || id == DEFAULT_PROJECT {
        return Ok(None);
    }
    let mut open = projects.iter().filter(|project| !project.archived);
    match open.find(|project| project.id == id) {
        Some(project) => Ok(Some(project.id.clone())),
        None => Err("There is no such project.".into()),
    }
}

/// The end of the last day, in UTC. A key that has this last day already keeps its time. The form that undoes a change
/// names the time itself, which may be over.
fn expiry(day: &str, before: Option<&Key>) -> Result<Option<i64>, String> {
    let day = day.trim();
    if day.is_empty() {
        return Ok(None);
    }
    let present = before.and_then(|key| key.terms.expires_at);
    if let Some(at) = present.filter(|at| last_day(*at) == day) {
        return Ok(Some(at));
    }
    if let Some(at) = timestamp::read(day) {
        return Ok(Some(at));
    }
    let begin = timestamp::read(&format!("{day}T00:00:00Z"));
    let end = begin.map(|begin| begin + DAY);
    match end.filter(|end| *end > timestamp::now()) {
        Some(end) => Ok(Some(end)),
        None => Err("The last day of a key is today or later, for example 2030-01-31.".into()),
    }
}

/// The fields of the form that gives a key back its project and terms.
pub(crate) fn fields_of(key: &Key) -> Vec<(String, String)> {
    let terms = &key.terms;
    let ceiling = |ceiling: Option<u32>| ceiling.map_or_else(String::new, |it| it.to_string());
    let fields = [
        ("project", key.payer.project().to_owned()),
        (
            "expires",
            terms.expires_at.map_or_else(String::new, timestamp::shown),
        ),
        ("rpm", ceiling(terms.rpm)),
        ("tpm", ceiling(terms.tpm)),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value));
    let models = terms.models.iter().flatten();
    let models = models.map(|id| (format!("{MODEL_FIELD}{id}"), "on".to_owned()));
    fields.into_iter().chain(models).collect()
}

/// The last day on which a key with this expiry works.
fn last_day(expires_at: i64) -> String {
    timestamp::day(expires_at - 1)
}

fn ceiling(text: &str, what: &str) -> Result<Option<u32>, String> {
    match text.trim() {
        "" => Ok(None),
        text => match text.parse() {
            Ok(ceiling) if ceiling > 0 => Ok(Some(ceiling)),
            _ => Err(format!(
                "{what}: enter a whole number from 1, or leave it empty."
            )),
        },
    }
}

/// A choice of the account's open projects.
pub(crate) fn project_field(projects: &[Project], chosen: &str) -> Markup {
    html! {
        label { "Project"
            select name="project" {
                option value=(DEFAULT_PROJECT) selected[chosen == DEFAULT_PROJECT] { (DEFAULT_NAME) }
                @for project in projects.iter().filter(|project| !project.archived) {
                    option value=(project.id) selected[chosen == project.id] { (project.name) }
                }
            }
        }
    }
}

pub(crate) fn expiry_field(expires_at: Option<i64>) -> Markup {
    html! {
        label { "Last day"
            input type="date" name="expires" value=[expires_at.map(last_day)];
            span.muted { "The key expires at the end of this day (UTC). Empty: never." }
        }
    }
}

pub(crate) fn limit_fields(terms: &KeyTerms) -> Markup {
    let field = |label: &str, name: &str, value: Option<u32>| {
        html! {
            label { (label)
                input type="number" name=(name) min="1" max=(u32::MAX) value=[value];
            }
        }
    };
    html! {
        (field("Requests per minute", "rpm", terms.rpm))
        (field("Tokens per minute", "tpm", terms.tpm))
    }
}

/// A box for each model of the plan, and for those that the key has already.
pub(crate) fn model_fields(gateway: &Gateway, plan: Plan, chosen: Option<&[String]>) -> Markup {
    let chosen = chosen.unwrap_or_default();
    let mut ids: Vec<_> = gateway
        .visible_models(plan)
        .iter()
        .map(|model| model.id.clone())
        .collect();
    let missing = chosen.iter().filter(|id| !ids.contains(*id)).cloned();
    let missing: Vec<_> = missing.collect();
    ids.extend(missing);
    html! {
        fieldset {
            legend { "Models" }
            p.muted { "None checked: all models of your plan." }
            @for id in &ids {
                label.check {
                    input type="checkbox" name={ (MODEL_FIELD) (id) } checked[chosen.contains(id)];
                    " " (id)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_ends_with_its_last_day() {
        let end = expiry("2999-12-31", None).unwrap().unwrap();
        assert_eq!(timestamp::shown(end), "3000-01-01T00:00:00Z");
        assert_eq!(last_day(end), "2999-12-31");
        assert_eq!(expiry(" ", None), Ok(None));
        let exact = timestamp::read("2020-01-01T12:34:56Z");
        assert_eq!(expiry("2020-01-01T12:34:56Z", None), Ok(exact));
        let today = timestamp::day(timestamp::now());
        assert!(expiry(&today, None).is_ok());
        for wrong in ["2020-01-01", "31.1.2030", "2030-02-30", "tomorrow"] {
            assert!(expiry(wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_ceiling_is_a_number_above_zero_or_nothing() {
        for (text, expected) in [("", None), (" ", None), ("7", Some(7)), (" 60 ", Some(60))] {
            assert_eq!(ceiling(text, "These"), Ok(expected), "{text:?}");
        }
        for wrong in ["0", "-1", "1.5", "many", "4294967296"] {
            assert!(ceiling(wrong, "These").is_err(), "{wrong}");
        }
    }
}
