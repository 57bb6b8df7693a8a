//! The fields of a form for what binds a key: project, expiry, models and its own limits.

use std::collections::BTreeMap;

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
    others: BTreeMap<String, String>,
}

/// The project and the terms that a form asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// `None` for the default project.
    pub project_id: Option<String>,
    pub terms: KeyTerms,
}

impl TermsForm {
    /// The fields with what a key has.
    pub(crate) fn of(key: &Key) -> Self {
        let terms = &key.terms;
        let ceiling = |ceiling: Option<u32>| ceiling.map_or_else(String::new, |it| it.to_string());
        let models = terms.models.iter().flatten();
        Self {
            project: key.payer.project().to_owned(),
            expires: terms.expires_at.map_or_else(String::new, last_day),
            rpm: ceiling(terms.rpm),
            tpm: ceiling(terms.tpm),
            others: models
                .map(|id| (format!("{MODEL_FIELD}{id}"), "on".to_owned()))
                .collect(),
        }
    }

    /// Whether one of the fields of a new key is filled in.
    pub(crate) fn is_typed(&self) -> bool {
        let has_project = !["", DEFAULT_PROJECT].contains(&self.project.as_str());
        has_project || !self.expires.trim().is_empty() || self.model_ids().next().is_some()
    }

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

    fn model_ids(&self) -> impl Iterator<Item = &str> {
        let fields = self.others.keys();
        fields.filter_map(|field| field.strip_prefix(MODEL_FIELD))
    }

    fn models(&self, gateway: &Gateway) -> Result<Option<Vec<String>>, String> {
        let models: Vec<_> = self.model_ids().map(str::to_owned).collect();
        let routes = gateway.routes();
        if models.iter().any(|id| routes.catalog.find(id).is_none()) {
            return Err("There is no such model.".into());
        }
        Ok((!models.is_empty()).then_some(models))
    }

    /// A choice of the account's open projects.
    pub(crate) fn project_field(&self, projects: &[Project]) -> Markup {
        let chosen = self.project.as_str();
        html! {
            label { "Project"
                select name="project" {
                    option value=(DEFAULT_PROJECT) selected[["", DEFAULT_PROJECT].contains(&chosen)] { (DEFAULT_NAME) }
                    @for project in projects.iter().filter(|project| !project.archived) {
                        option value=(project.id) selected[chosen == project.id] { (project.name) }
                    }
                }
            }
        }
    }

    pub(crate) fn expiry_field(&self) -> Markup {
        let typed = self.expires.trim();
        // The form that undoes a change names a time.
        let day = timestamp::read(typed).map_or_else(|| typed.to_owned(), last_day);
        html! {
            label { "Last day"
                input type="date" name="expires" value=[filled(&day)];
                span.muted { "The key expires at the end of this day (UTC). Empty: never." }
            }
        }
    }

    pub(crate) fn limit_fields(&self) -> Markup {
        let field = |label: &str, name: &str, typed: &str| {
            html! {
                label { (label)
                    input type="number" name=(name) min="1" max=(u32::MAX) value=[filled(typed)];
                }
            }
        };
        html! {
            (field("Requests per minute", "rpm", &self.rpm))
            (field("Tokens per minute", "tpm", &self.tpm))
        }
    }

    /// A box for each model of the plan, and for those that are chosen already.
    pub(crate) fn model_fields(&self, gateway: &Gateway, plan: Plan) -> Markup {
        let mut ids: Vec<_> = gateway
            .visible_models(plan)
            .iter()
            .map(|model| model.id.clone())
            .collect();
        let chosen: Vec<_> = self.model_ids().collect();
        let missing = chosen
            .iter()
            .filter(|id| !ids.iter().any(|one| one == **id));
        let missing: Vec<_> = missing.map(|id| (*id).to_owned()).collect();
        ids.extend(missing);
        html! {
            fieldset {
                legend { "Models" }
                p.muted { "None checked: all models of your plan." }
                @for id in &ids {
                    label.check {
                        input type="checkbox" name={ (MODEL_FIELD) (id) } checked[chosen.contains(&id.as_str())];
                        " " (id)
                    }
                }
            }
        }
    }
}

/// The value of a field, unless it is empty.
fn filled(typed: &str) -> Option<&str> {
    (!typed.is_empty()).then_some(typed)
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
    let present = TermsForm::of(key);
    let exactly = key
        .terms
        .expires_at
        .map_or_else(String::new, timestamp::shown);
    let fields = [
        ("project", present.project),
        ("expires", exactly),
        ("rpm", present.rpm),
        ("tpm", present.tpm),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value));
    fields.into_iter().chain(present.others).collect()
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
