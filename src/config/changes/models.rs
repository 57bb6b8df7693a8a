//! The models of the built-in catalog and of the file's, as entries.

use toml::{Table, Value as Toml};

use super::{
    Base,
    entries::{Provenance, as_table},
};
use crate::{
    base::checked_toml::{self, Value},
    catalog,
    config::files,
};

impl Base {
    /// The models of the built-in catalog and of the file's.
    pub(super) fn models(&self) -> &[(String, Provenance, Table)] {
        self.models.get_or_init(|| self.read_models())
    }

    fn read_models(&self) -> Vec<(String, Provenance, Table)> {
        let file = self
            .at(&["catalog", "file"])
            .and_then(|node| match &node.value {
                Value::Text(path) => files::read_text(path.as_ref()).ok(),
                _ => None,
            });
        let flag = self.at(&["catalog", "extends"]).map(|node| &node.value);
        let extends = file.is_none()
            || !matches!(flag, Some(Value::Flag(false)))
                && !matches!(flag, Some(Value::Text(text)) if text == "false");
        let built_in = if extends { catalog::BUILT_IN } else { "" };
        let (mut models, built_in_defaults) = catalog_models(built_in, Provenance::BuiltIn);
        let (own, own_defaults) = catalog_models(&file.unwrap_or_default(), Provenance::File);
        // An entry that replaces a built-in model has the defaults of the file, so it needs what they would change.
        for (_, _, model) in &mut models {
            keep_defaults(model, &built_in_defaults, &own_defaults);
        }
        for (id, provenance, table) in own {
            match models.iter_mut().find(|(known, ..)| *known == id) {
                Some(known) => *known = (id, provenance, table),
                None => models.push((id, provenance, table)),
            }
        }
        models
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
fn catalog_models(text: &str, provenance: Provenance) -> (Vec<(String, Provenance, Table)>, Table) {
    let Ok(document) = checked_toml::parse(text) else {
        return (Vec::new(), Table::new());
    };
    let mut catalog = as_table(&document);
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
