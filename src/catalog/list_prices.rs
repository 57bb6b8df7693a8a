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
    /// The model of this vendor; one with a date behind its name costs what the model costs. Resellers write the versions of
    /// Claude with a dot.
    pub(crate) fn find(&self, vendor: &str, id: &str) -> Option<&ListedModel> {
        let named = |name: &str| {
            let mut models = self.models.iter();
            models.find(|model| model.vendor == vendor && model.id == name)
        };
        let found = named(id).or_else(|| named(without_date(id)?));
        found.or_else(|| named(&id.replace('.', "-")).filter(|_| vendor == "anthropic"))
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

/// Whose models a provider sells at their list prices.
enum Seller {
    Vendor(&'static str),
    OpenRouter,
}

/// `OpenRouter` begins the names of models with their maker, and asks what the maker asks.
const MAKERS: [(&str, &str); 6] = [
    ("openai", "openai"),
    ("anthropic", "anthropic"),
    ("google", "google"),
    ("mistralai", "mistral"),
    ("deepseek", "deepseek"),
    ("x-ai", "xai"),
];

fn seller(kind: &str, base_url: &str) -> Option<Seller> {
    let host = base_url.split("://").nth(1).unwrap_or_default();
    let host = host.split(['/', ':']).next().unwrap_or_default();
    Some(Seller::Vendor(match (kind, host) {
        ("anthropic", "" | "api.anthropic.com") => "anthropic",
        ("gemini", "" | "generativelanguage.googleapis.com") => "google",
        ("openai", "api.openai.com") => "openai",
        ("openai", "api.mistral.ai") => "mistral",
        ("openai", "api.groq.com") => "groq",
        ("openai", "api.deepseek.com") => "deepseek",
        ("openai", "api.x.ai") => "xai",
        ("openai", host) if host.ends_with(".openai.azure.com") => "openai",
        ("openai", "openrouter.ai") => return Some(Seller::OpenRouter),
        _ => return None,
    }))
}

/// The vendor of the models at this provider, and the vendor's name for a model there.
pub(crate) fn vendor_of<'a>(
    kind: &str,
    base_url: &str,
    model: &'a str,
) -> Option<(&'static str, &'a str)> {
    match seller(kind, base_url)? {
        Seller::Vendor(vendor) => Some((vendor, model)),
        Seller::OpenRouter => {
            let (maker, model) = model.split_once('/')?;
            let (_, vendor) = MAKERS.iter().find(|(name, _)| *name == maker)?;
            Some((*vendor, model))
        }
    }
}

/// The name under which this provider sells a model at its list price; `None` if it does not, or if the name is not known.
pub(crate) fn name_at(kind: &str, base_url: &str, model: &ListedModel) -> Option<String> {
    match seller(kind, base_url)? {
        Seller::Vendor(vendor) => (vendor == model.vendor).then(|| model.id.clone()),
        Seller::OpenRouter => {
            let (maker, vendor) = MAKERS.iter().find(|(_, vendor)| *vendor == model.vendor)?;
            let id = match *vendor {
                "openai" | "google" | "deepseek" => model.id.clone(),
                "anthropic" => with_dotted_version(&model.id),
                // It has other names for these, without `-latest` for one.
                _ => return None,
            };
            Some(format!("{maker}/{id}"))
        }
    }
}

/// `claude-opus-4-8` as `claude-opus-4.8`.
fn with_dotted_version(id: &str) -> String {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match id.rsplit_once('-') {
        Some((before, minor))
            if is_number(minor) && before.ends_with(|c: char| c.is_ascii_digit()) =>
        {
            format!("{before}.{minor}")
        }
        _ => id.to_owned(),
    }
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
            (
                "openai",
                "https://openrouter.ai/api/v1",
                "anthropic/claude-sonnet-4.5",
                Some("claude-sonnet-4-5"),
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

    /// What a suggestion calls a model is found again when the suggestion is read.
    #[test]
    fn the_name_at_a_seller_is_that_of_the_listed_model() {
        let sellers = [
            ("openai", "https://api.openai.com/v1", 20),
            ("gemini", "", 9),
            ("openai", "https://openrouter.ai/api/v1", 44),
        ];
        for (kind, url, expected) in sellers {
            let mut named = 0;
            for model in &LIST_PRICES.models {
                let Some(name) = name_at(kind, url, model) else {
                    continue;
                };
                let (vendor, id) = vendor_of(kind, url, &name).unwrap();
                let found = LIST_PRICES.find(vendor, id).unwrap();
                assert_eq!(
                    (&found.vendor, &found.id),
                    (&model.vendor, &model.id),
                    "{name}"
                );
                named += 1;
            }
            assert_eq!(named, expected, "{kind} {url}");
        }
        let claude = LIST_PRICES.find("anthropic", "claude-opus-4-8").unwrap();
        let name = name_at("openai", "https://openrouter.ai/api/v1", claude);
        assert_eq!(name.as_deref(), Some("anthropic/claude-opus-4.8"));
    }
}
