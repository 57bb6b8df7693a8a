//! The vendors' list prices, as data with their date.

use std::{collections::BTreeMap, sync::LazyLock};

use crate::base::checked_toml::{self, Node, Value, as_text};

const TEXT: &str = include_str!("list_prices.toml");

/// The settings of a model that are prices.
pub(crate) const PRICES: [&str; 6] = [
    "input",
    "output",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "above",
];

pub(crate) struct ListPrices {
    pub date: String,
    pub models: Vec<ListedModel>,
}

pub(crate) struct ListedModel {
    pub vendor: String,
    /// The vendor's name for it.
    pub id: String,
    /// Its prices and its limits, as settings of a model.
    pub settings: BTreeMap<String, Node>,
}

pub(crate) static LIST_PRICES: LazyLock<ListPrices> = LazyLock::new(|| {
    let mut document = entries(checked_toml::parse(TEXT).expect("checked by the tests"));
    let date = document.remove("date");
    let date = date.as_ref().and_then(text).unwrap_or_default();
    let models = match document.remove("models").map(|node| node.value) {
        Some(Value::List(models)) => models,
        _ => Vec::new(),
    };
    let models = models.into_iter().filter_map(|model| {
        let mut settings = entries(model);
        Some(ListedModel {
            vendor: text(&settings.remove("vendor")?)?,
            id: text(&settings.remove("id")?)?,
            settings,
        })
    });
    ListPrices {
        date,
        models: models.collect(),
    }
});

impl ListPrices {
    /// The model of this vendor; one with a date behind its name costs what the model costs.
    pub(crate) fn find(&self, vendor: &str, id: &str) -> Option<&ListedModel> {
        let named = |name: &str| {
            let mut models = self.models.iter();
            models.find(|model| model.vendor == vendor && model.id == name)
        };
        named(id).or_else(|| named(without_date(id)?))
    }
}

/// The name without `-20250929` or `-2025-08-07` at its end.
fn without_date(name: &str) -> Option<&str> {
    let (mut digits, mut at) = (0, name.len());
    for (index, byte) in name.bytes().enumerate().rev() {
        match byte {
            b'0'..=b'9' if digits < 8 => digits += 1,
            b'-' if digits == 8 => {
                at = index;
                break;
            }
            b'-' if [2, 4].contains(&digits) => {}
            _ => return None,
        }
    }
    (at < name.len()).then(|| &name[..at])
}

/// The vendor of the models at this provider, and the vendor's name for a model there.
pub(crate) fn vendor_of<'a>(
    kind: &str,
    base_url: &str,
    model: &'a str,
) -> Option<(&'static str, &'a str)> {
    let host = base_url.split("://").nth(1).unwrap_or_default();
    let host = host.split(['/', ':']).next().unwrap_or_default();
    let vendor = match (kind, host) {
        ("anthropic", "" | "api.anthropic.com") => "anthropic",
        ("gemini", "" | "generativelanguage.googleapis.com") => "google",
        ("openai", "api.openai.com") => "openai",
        ("openai", "api.mistral.ai") => "mistral",
        ("openai", "api.groq.com") => "groq",
        ("openai", "api.deepseek.com") => "deepseek",
        ("openai", "api.x.ai") => "xai",
        ("openai", host) if host.ends_with(".openai.azure.com") => "openai",
        ("openai", "openrouter.ai") => {
            let (maker, model) = model.split_once('/')?;
            return Some((openrouter_vendor(maker)?, model));
        }
        _ => return None,
    };
    Some((vendor, model))
}

/// The models of `OpenRouter` begin with their maker, and cost what the maker asks.
fn openrouter_vendor(maker: &str) -> Option<&'static str> {
    Some(match maker {
        "openai" => "openai",
        "anthropic" => "anthropic",
        "google" => "google",
        "mistralai" => "mistral",
        "deepseek" => "deepseek",
        "x-ai" => "xai",
        _ => return None,
    })
}

fn entries(node: Node) -> BTreeMap<String, Node> {
    match node.value {
        Value::Table(entries) => entries,
        _ => BTreeMap::new(),
    }
}

fn text(node: &Node) -> Option<String> {
    as_text(&node.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::checked_toml::Origin, catalog::Catalog};

    /// Written as models of a catalog, they are read without a mistake.
    #[test]
    fn every_listed_model_can_be_sold() {
        let list = &*LIST_PRICES;
        assert!(list.models.len() > 50 && list.date.len() == 10);
        let models = list.models.iter().map(|model| {
            let mut settings = model.settings.clone();
            let id = Value::Text(format!("{}/{}", model.vendor, model.id));
            let origin = Origin::Absent;
            settings.insert("id".into(), Node { origin, value: id });
            Node {
                origin: Origin::Absent,
                value: Value::Table(settings),
            }
        });
        let list = Node {
            origin: Origin::Absent,
            value: Value::List(models.collect()),
        };
        let document = Node {
            origin: Origin::Absent,
            value: Value::Table(BTreeMap::from([("models".to_owned(), list)])),
        };
        let catalog = Catalog::built_in().changed_by(document, &[].into());
        assert_eq!(catalog.err(), None);
    }

    #[test]
    fn a_model_is_found_under_its_name_with_a_date_and_at_resellers() {
        let find = |kind: &str, url: &str, model: &str| {
            let (vendor, id) = vendor_of(kind, url, model)?;
            Some(LIST_PRICES.find(vendor, id)?.id.as_str())
        };
        for (kind, url, model, found) in [
            (
                "openai",
                "https://api.openai.com/v1",
                "gpt-4o",
                Some("gpt-4o"),
            ),
            (
                "openai",
                "https://api.openai.com/v1",
                "gpt-4o-2024-08-06",
                Some("gpt-4o"),
            ),
            ("openai", "https://api.openai.com/v1", "gpt-4o-0806", None),
            (
                "openai",
                "https://mine.openai.azure.com/openai/v1",
                "gpt-4o",
                Some("gpt-4o"),
            ),
            (
                "openai",
                "https://openrouter.ai/api/v1",
                "openai/gpt-4o",
                Some("gpt-4o"),
            ),
            ("openai", "https://openrouter.ai/api/v1", "gpt-4o", None),
            ("openai", "http://127.0.0.1:11434/v1", "gpt-4o", None),
            (
                "openai",
                "https://api.openai.com.example.com/v1",
                "gpt-4o",
                None,
            ),
            (
                "anthropic",
                "",
                "claude-sonnet-4-5-20250929",
                Some("claude-sonnet-4-5"),
            ),
            (
                "anthropic",
                "https://proxy.example.com/v1",
                "claude-sonnet-4-5",
                None,
            ),
        ] {
            assert_eq!(find(kind, url, model), found, "{url} {model}");
        }
    }
}
