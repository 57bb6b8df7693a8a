//! The models of the built-in catalog and of the file's, as entries.

use toml::{Table, Value as Toml};

use super::{
    Base,
    entries::{Original, Provenance, as_table},
};
use crate::{
    base::checked_toml::{self, Node, Origin, Value},
    catalog,
    config::{files, own_models::CatalogSays},
};

impl Base {
    /// The models of the built-in catalog and of the file's.
    pub(super) fn models(&self) -> &[Original] {
        &self.models.get_or_init(|| self.read_models()).0
    }

    /// What the file's catalog says of all its models.
    pub(super) fn catalog_says(&self) -> CatalogSays {
        self.models.get_or_init(|| self.read_models()).1
    }

    fn read_models(&self) -> (Vec<Original>, CatalogSays) {
        let file =
            self.at(&["catalog", "file"])
                .and_then(|node| match (&node.value, &node.origin) {
                    (Value::Text(path), Origin::Variable(_)) => {
                        files::read_text(path.as_ref()).ok()
                    }
                    (Value::Text(path), _) => files::read_text(&self.folder.join(path)).ok(),
                    _ => None,
                });
        let flag = self.at(&["catalog", "extends"]).map(|node| &node.value);
        let extends = file.is_none()
            || !matches!(flag, Some(Value::Flag(false)))
                && !matches!(flag, Some(Value::Text(text)) if text == "false");
        let built_in = if extends { catalog::BUILT_IN } else { "" };
        let built_in = checked_toml::parse(built_in).ok();
        let built_in = built_in.map(|document| models_of(&document, Provenance::BuiltIn));
        let (mut models, built_in_defaults) = built_in.unwrap_or_default();
        let file = checked_toml::parse(&file.unwrap_or_default()).ok();
        let says = file.as_ref().map(CatalogSays::read);
        let file = file.map(|document| models_of(&document, Provenance::File));
        let (own, own_defaults) = file.unwrap_or_default();
        // An entry that replaces a built-in model has the defaults of the file, so it needs what they would change.
        for (_, _, model) in &mut models {
            keep_defaults(model, &built_in_defaults, &own_defaults);
        }
        let own_in_file = self.own_models.catalog.iter().flat_map(|document| {
            let (models, _) = models_of(document, Provenance::File);
            models
        });
        for (id, provenance, table) in own.into_iter().chain(own_in_file) {
            match models.iter_mut().find(|(known, ..)| *known == id) {
                Some(known) => *known = (id, provenance, table),
                None => models.push((id, provenance, table)),
            }
        }
        (models, says.unwrap_or_default())
    }
}

fn keep_defaults(model: &mut Table, own: &Table, replacing: &Table) {
    for (key, value) in replacing {
        if model.contains_key(key) {
            continue;
        }
        let free = ["request", "image"]
            .contains(&key.as_str())
            .then(|| Toml::from("0"));
        if let Some(kept) = own.get(key).cloned().or(free).filter(|kept| kept != value) {
            model.insert(key.clone(), kept);
        }
    }
}

/// The models of a catalog, and its defaults.
fn models_of(document: &Node, provenance: Provenance) -> (Vec<Original>, Table) {
    let mut catalog = as_table(document);
    let models = match catalog.remove("models") {
        Some(Toml::Array(models)) => models,
        _ => Vec::new(),
    };
    let models = models.into_iter().filter_map(|model| {
        let Toml::Table(mut model) = model else {
            return None;
        };
        let id = model.remove("id")?.as_str()?.to_owned();
        Some((id, provenance, model))
    });
    let models = models.collect();
    let defaults = match catalog.remove("defaults") {
        Some(Toml::Table(defaults)) => defaults,
        _ => Table::new(),
    };
    (models, defaults)
}
