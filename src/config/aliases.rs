//! The `[models.aliases]` section: other names for models of the catalog.

use crate::{
    base::checked_toml::Section,
    catalog::{Aliases, Catalog},
};

/// Reads the aliases. Each is a name, or a prefix followed by `*`, and the ID of its model.
pub(crate) fn aliases(mut models: Section, catalog: &Catalog) -> Aliases {
    let mut section = models.section("aliases");
    let names = section.keys();
    let mut read = Vec::new();
    for name in &names {
        let problem = name_problem(name).or_else(|| {
            let target = section.text_of(name)?;
            let mut usable = names.iter().filter(|name| name_problem(name).is_none());
            let is_alias = usable.any(|other| matches(other, target));
            target_problem(catalog, target, is_alias)
        });
        if let Some(problem) = problem {
            section.refuse(name, &problem);
            continue;
        }
        let id = section.text(name, "the ID of a model of the catalog, e.g. `svc-pro`");
        let model = id.and_then(|id| catalog.find(&id).cloned());
        read.extend(model.map(|model| (name.clone(), model)));
    }
    section.finish();
    models.finish();
    Aliases::new(read)
}

/// Whether the alias matches this text.
fn matches(alias: &str, text: &str) -> bool {
    match alias.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => alias == text,
    }
}

/// What is wrong with the name of an alias.
fn name_problem(name: &str) -> Option<String> {
    let prefix = name.strip_suffix('*').unwrap_or(name);
    let problem = if name.is_empty() {
        "has an empty name; write the name that callers ask for"
    } else if prefix.is_empty() {
        "matches every name, mistyped ones too; write the beginning of a name before `*`"
    } else if prefix.contains('*') {
        "has a `*` before its end; write an exact name, or a beginning followed by one `*`"
    } else if !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
        "has a blank or a character that is not ASCII; no client asks for such a name"
    } else {
        return None;
    };
    Some(problem.to_owned())
}

/// What is wrong with the model of an alias.
fn target_problem(catalog: &Catalog, target: &str, is_alias: bool) -> Option<String> {
    if catalog.find(target).is_some() {
        return None;
    }
    Some(if is_alias {
        format!("is \"{target}\", which is an alias itself; write the ID of the model")
    } else {
        format!("is \"{target}\"; expected the ID of a model of the catalog, e.g. `svc-pro`")
    })
}
