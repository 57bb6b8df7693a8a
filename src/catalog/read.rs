//! Parses catalog TOML into a [`Catalog`]; reports every mistake at once.

use std::{collections::BTreeSet, sync::Arc};

use super::{Catalog, Model, Parameter, Prices, Router, Tier, router::as_quality_tier};
use crate::base::{
    checked_toml::{self, Mistake, Node, Section, Value, as_text},
    money::TokenPrice,
};

/// Parses a catalog. With `base`, the new catalog starts from the defaults and models of `base`.
pub(crate) fn parse(text: &str, base: Option<&Catalog>) -> Result<Catalog, Vec<Mistake>> {
    read(checked_toml::parse(text)?, base, &BTreeSet::new())
}

/// Reads a catalog from a parsed document. Of the models of `base`, those in `removed` are left out.
pub(crate) fn read(
    document: Node,
    base: Option<&Catalog>,
    removed: &BTreeSet<String>,
) -> Result<Catalog, Vec<Mistake>> {
    checked_toml::read(document, |root| {
        let identity_prompt = root
            .text(
                "identity_prompt",
                "a text; `{name}` is replaced by the model's name",
            )
            .or_else(|| base.map(|base| base.identity_prompt.clone()))
            .unwrap_or_default();
        let mut defaults = root.section("defaults");
        for key in Prices::WITHOUT_DEFAULT {
            defaults.refuse(key, "belongs to a model: it has no default");
        }
        let default = model(
            &mut defaults,
            &base.map_or_else(blank, |base| base.defaults.clone()),
        );
        defaults.finish();

        let kept = base.into_iter().flat_map(Catalog::models);
        let kept = kept.filter(|model| !removed.contains(&model.id));
        let mut models: Vec<Model> = kept.map(|model| (**model).clone()).collect();
        let before = models.len();
        for mut section in root.list_of_sections("models") {
            let id = section
                .required("id", "the model's ID", as_text)
                .unwrap_or_default();
            let price_given = ["input", "output"].map(|price| section.contains(price));
            let model = model(&mut section, &default);
            let model = Model {
                id,
                router: Router::read(&mut section, &model.targets),
                ..model
            };
            check(&section, &model, price_given);
            section.finish();
            match models.iter().position(|known| known.id == model.id) {
                Some(at) if at < before => models[at] = model,
                Some(_) => root.mistake("models", &format!("has two models `{}`", model.id)),
                None => models.push(model),
            }
        }
        if models.is_empty() {
            root.mistake("models", "is missing; expected at least one `[[models]]`");
        }
        price_hybrids(root, &mut models);
        rank_quality(&mut models);
        Catalog::new(models, identity_prompt, default)
    })
}

/// Placeholder quality tier of a model that sets none, until [`rank_quality`] has run.
const UNRANKED: u8 = 0;

/// Gives each model without a `quality_tier` the quartile of its input price among all plain models.
fn rank_quality(models: &mut [Model]) {
    let plain = models.iter().filter(|model| !model.is_hybrid());
    let prices: Vec<_> = plain.map(|model| model.prices.rates.input).collect();
    for model in models {
        if model.quality_tier == UNRANKED {
            let cheaper = prices
                .iter()
                .filter(|price| **price < model.prices.rates.input);
            let quarter = 4 * cheaper.count() / prices.len().max(1);
            model.quality_tier = 1 + u8::try_from(quarter.min(3)).unwrap_or(3);
        }
    }
}

/// Defaults of a catalog that has no `[defaults]`.
fn blank() -> Model {
    Model {
        id: String::new(),
        name: String::new(),
        description: String::new(),
        created: 0,
        prices: Arc::default(),
        context_length: 1_050_000,
        max_output: 66_000,
        min_output: None,
        features: ["tools", "json_mode", "structured_outputs", "streaming"]
            .map(Into::into)
            .into(),
        input_modalities: vec!["text".into()],
        output_modalities: vec!["text".into()],
        quantization: "unknown".into(),
        tokenizer: "unknown".into(),
        instruct_type: "general".into(),
        is_moderated: false,
        min_tier: Tier::Free,
        builtin_tools: true,
        identity_prompt: true,
        max_tools: 100,
        unlisted: false,
        targets: Vec::new(),
        router: None,
        quality_tier: UNRANKED,
        drops: Vec::new(),
    }
}

fn model(section: &mut Section, default: &Model) -> Model {
    let texts = |section: &mut Section, key: &str, default: &[String]| {
        section
            .texts(key, "a list of texts")
            .unwrap_or_else(|| default.to_vec())
    };
    let text = |section: &mut Section, key: &str, default: &str| {
        section
            .text(key, "a text")
            .unwrap_or_else(|| default.to_owned())
    };
    let tokens = |section: &mut Section, key: &str| {
        let above_zero = |value: &Value| checked_toml::as_integer(value).filter(|n| *n > 0);
        section.optional(key, "a number of tokens above zero", above_zero)
    };
    Model {
        id: String::new(),
        name: text(section, "name", &default.name),
        description: text(section, "description", &default.description),
        created: section
            .integer("created", "a Unix time in seconds")
            .unwrap_or(default.created),
        prices: Arc::new(Prices::read(section, &default.prices)),
        context_length: tokens(section, "context_length").unwrap_or(default.context_length),
        max_output: tokens(section, "max_output").unwrap_or(default.max_output),
        min_output: tokens(section, "min_output").or(default.min_output),
        features: texts(section, "features", &default.features),
        input_modalities: texts(section, "input_modalities", &default.input_modalities),
        output_modalities: texts(section, "output_modalities", &default.output_modalities),
        quantization: text(section, "quantization", &default.quantization),
        tokenizer: text(section, "tokenizer", &default.tokenizer),
        instruct_type: text(section, "instruct_type", &default.instruct_type),
        is_moderated: section.flag("is_moderated").unwrap_or(default.is_moderated),
        min_tier: section
            .optional(
                "min_tier",
                "free, basic, standard, pro, max or flex",
                |value| Tier::parse(&as_text(value)?),
            )
            .unwrap_or(default.min_tier),
        builtin_tools: section
            .flag("builtin_tools")
            .unwrap_or(default.builtin_tools),
        identity_prompt: section
            .flag("identity_prompt")
            .unwrap_or(default.identity_prompt),
        max_tools: section
            .integer("max_tools", "a number of tool definitions")
            .unwrap_or(default.max_tools),
        unlisted: section.flag("unlisted").unwrap_or(default.unlisted),
        targets: texts(section, "targets", &default.targets),
        router: None,
        quality_tier: section
            .optional("quality_tier", "a number from 1 to 4", as_quality_tier)
            .unwrap_or(default.quality_tier),
        drops: dropped(section).unwrap_or_else(|| default.drops.clone()),
    }
}

fn dropped(section: &mut Section) -> Option<Vec<Parameter>> {
    let names: Vec<_> = Parameter::ALL
        .iter()
        .map(|parameter| parameter.as_str())
        .collect();
    section.optional(
        "drops",
        &format!("a list of {}", names.join(", ")),
        |value| match value {
            Value::List(items) => items
                .iter()
                .map(|item| Parameter::parse(&as_text(&item.value)?))
                .collect(),
            _ => None,
        },
    )
}

/// Checks settings of one model against each other. A price of zero must be written in the model itself, so that
/// no model is free by accident.
fn check(section: &Section, model: &Model, price_given: [bool; 2]) {
    if model.min_output.is_some_and(|min| min > model.max_output) {
        section.mistake("min_output", "is above `max_output`");
    }
    let prices = [
        ("input", model.prices.rates.input),
        ("output", model.prices.rates.output),
    ];
    for ((key, price), given) in prices.into_iter().zip(price_given) {
        if price == TokenPrice::default() && !given && !model.is_hybrid() {
            section.mistake(key, "is missing; expected a price, e.g. \"9.00\"");
        }
    }
}

/// Sets the shown prices of each hybrid to the highest of its targets' prices, so that no call costs more.
fn price_hybrids(root: &Section, models: &mut [Model]) {
    let by_id: std::collections::HashMap<_, _> = models
        .iter()
        .filter(|model| !model.is_hybrid())
        .map(|model| (model.id.clone(), (model.prices.clone(), model.min_tier)))
        .collect();
    for hybrid in models.iter_mut().filter(|model| model.is_hybrid()) {
        let (mut highest, mut lowest) = (Prices::default(), None);
        for target in &hybrid.targets {
            let Some((prices, tier)) = by_id.get(target) else {
                let message = format!(
                    "`{}` has the target `{target}`, which is no plain model of this catalog",
                    hybrid.id
                );
                root.mistake("models", &message);
                continue;
            };
            lowest = Some(lowest.map_or(*tier, |lowest: Tier| lowest.min(*tier)));
            highest = highest.max(prices);
        }
        hybrid.prices = Arc::new(highest);
        // A hybrid routes only to models that the plan includes, so its lowest plan must include a target.
        if let Some(lowest) = lowest.filter(|lowest| *lowest > hybrid.min_tier) {
            let (id, tier) = (&hybrid.id, hybrid.min_tier);
            let message = format!("`{id}` is for `{tier}`, and no target is below `{lowest}`");
            root.mistake("models", &message);
        }
    }
}
