//! `[[models]]`: the operator's own models, each with its price and its deployment in one entry.
//!
//! The entries are taken apart before anything is read. What a catalog says of a model goes to the catalog, where it is
//! served becomes a deployment, and its other names become aliases; so nothing else knows of this form. What an entry
//! leaves out of its prices and limits comes from the vendor's list prices.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use crate::{
    base::checked_toml::{Mistake, Node, Origin, Value, as_text},
    catalog::{
        is_built_in,
        list_prices::{LIST_PRICES, ListedModel, PRICES, vendor_of},
    },
};

type Entries = BTreeMap<String, Node>;

/// The settings of an entry that are those of its deployment.
const OF_DEPLOYMENT: [&str; 5] = ["upstream_model", "weight", "priority", "timeouts", "cost"];

/// The own models of a document.
#[derive(Debug, Default)]
pub(crate) struct OwnModels {
    /// As a document of a catalog; `None` if there are none.
    pub catalog: Option<Node>,
    /// Which deployments of the document were made of them: the number of each, with that of its model.
    deployments: Vec<(usize, usize)>,
}

/// Takes `[[models]]` and `[aliases]` out of a document, and adds the deployments and aliases that they mean.
pub(crate) fn take_apart(document: &mut Node) -> (OwnModels, Vec<Mistake>) {
    let mut mistakes = Vec::new();
    let Value::Table(root) = &mut document.value else {
        return (OwnModels::default(), mistakes);
    };
    let mut aliases = Entries::new();
    if let Some(written) = root.remove("aliases") {
        match written.value {
            Value::Table(written) => aliases = written,
            _ => mistakes.push(mistake(
                &written,
                "`aliases` must be written as `[aliases]`",
            )),
        }
    }
    let is_list = matches!(
        root.get("models").map(|node| &node.value),
        Some(Value::List(_))
    );
    let mut own = OwnModels::default();
    if is_list && let Some(list) = root.remove("models") {
        own = models(root, list, &mut aliases, &mut mistakes);
    }
    if !aliases.is_empty() {
        add_aliases(root, aliases, &mut mistakes);
    }
    (own, mistakes)
}

fn models(
    root: &mut Entries,
    list: Node,
    aliases: &mut Entries,
    mistakes: &mut Vec<Mistake>,
) -> OwnModels {
    let Value::List(mut models) = list.value else {
        return OwnModels::default();
    };
    let providers = match root.get("providers").map(|node| &node.value) {
        Some(Value::Table(providers)) => providers.clone(),
        _ => Entries::new(),
    };
    let (mut made, mut ids) = (Vec::new(), BTreeSet::new());
    for (at, model) in models.iter_mut().enumerate() {
        let origin = model.origin.clone();
        // Another value is reported when the catalog is read.
        let Value::Table(settings) = &mut model.value else {
            continue;
        };
        let Some(id) = settings.get("id").and_then(|id| as_text(&id.value)) else {
            continue;
        };
        if let Some(names) = settings.remove("aliases") {
            add_names(aliases, &id, &names, at, mistakes);
        }
        let deployment = deployment(settings, &id, &origin, at, mistakes);
        let listed = deployment
            .as_ref()
            .and_then(|of| listed(&providers, of, &id));
        fill_in(settings, &id, listed, &origin);
        if let Some(mut deployment) = deployment {
            add_cost(&mut deployment, listed, &origin);
            made.push((at, table(deployment, &origin)));
        }
        ids.insert(id);
    }
    if let Some(Value::List(written)) = root.get_mut("deployments").map(|node| &mut node.value) {
        add_costs(written, &ids, &providers);
    }
    let empty = || Node {
        origin: Origin::Absent,
        value: Value::List(Vec::new()),
    };
    let mut own = OwnModels::default();
    // Another value than a list is reported when the deployments are read.
    if !made.is_empty()
        && let Value::List(all) = &mut root.entry("deployments".into()).or_insert_with(empty).value
    {
        for (at, deployment) in made {
            own.deployments.push((all.len(), at));
            all.push(deployment);
        }
    }
    let list = Node {
        origin: list.origin,
        value: Value::List(models),
    };
    own.catalog = Some(table(
        Entries::from([("models".to_owned(), list)]),
        &Origin::Absent,
    ));
    own
}

/// Adds what the vendors ask to the other deployments of own models.
fn add_costs(deployments: &mut [Node], own: &BTreeSet<String>, providers: &Entries) {
    for deployment in deployments {
        let origin = deployment.origin.clone();
        let Value::Table(settings) = &mut deployment.value else {
            continue;
        };
        let model = settings.get("model").and_then(|id| as_text(&id.value));
        if let Some(id) = model.filter(|id| own.contains(id)) {
            let listed = listed(providers, settings, &id);
            add_cost(settings, listed, &origin);
        }
    }
}

fn add_cost(deployment: &mut Entries, listed: Option<&ListedModel>, origin: &Origin) {
    if let Some(listed) = listed {
        let cost = || table(prices(listed, origin), origin);
        deployment.entry("cost".into()).or_insert_with(cost);
    }
}

/// Takes the settings of a deployment out of those of a model; `None` without a provider.
fn deployment(
    settings: &mut Entries,
    id: &str,
    origin: &Origin,
    at: usize,
    mistakes: &mut Vec<Mistake>,
) -> Option<Entries> {
    let provider = settings.remove("provider");
    let given = OF_DEPLOYMENT.into_iter();
    let mut deployment: Entries = given
        .filter_map(|key| Some((key.to_owned(), settings.remove(key)?)))
        .collect();
    let Some(provider) = provider else {
        mistakes.extend(deployment.iter().map(|(key, node)| {
            mistake(
                node,
                &format!("`models[{at}].{key}` is about a provider: add `provider`"),
            )
        }));
        return None;
    };
    let model = Node {
        origin: origin.clone(),
        value: Value::Text(id.to_owned()),
    };
    deployment.insert("model".into(), model);
    deployment.insert("provider".into(), provider);
    Some(deployment)
}

/// The model in the vendors' lists that the provider of this deployment sells.
fn listed(providers: &Entries, deployment: &Entries, id: &str) -> Option<&'static ListedModel> {
    let text = |entries: &Entries, key: &str| as_text(&entries.get(key)?.value);
    let Value::Table(provider) = &providers.get(&text(deployment, "provider")?)?.value else {
        return None;
    };
    let url = text(provider, "base_url").unwrap_or_default();
    let upstream = text(deployment, "upstream_model").unwrap_or_else(|| id.to_owned());
    let (vendor, model) = vendor_of(&text(provider, "kind")?, &url, &upstream)?;
    LIST_PRICES.find(vendor, model)
}

/// What the entry does not say: no tools and no system prompt of ours, a name, and what the vendor's list says.
fn fill_in(settings: &mut Entries, id: &str, listed: Option<&ListedModel>, origin: &Origin) {
    CatalogSays::default().complete(id, settings, origin);
    default(settings, "name", Value::Text(id.to_owned()), origin);
    let Some(listed) = listed else { return };
    // With one price of its own, the others would not belong to it.
    let has_price = PRICES.iter().any(|key| settings.contains_key(*key));
    for (key, node) in &listed.settings {
        if !(has_price && PRICES.contains(&key.as_str())) {
            let listed = || node.clone().with_origin(origin);
            settings.entry(key.clone()).or_insert_with(listed);
        }
    }
}

/// What a catalog file says of all its models, which then have it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CatalogSays {
    of_tools: bool,
    of_prompt: bool,
}

impl CatalogSays {
    pub(crate) fn read(document: &Node) -> Self {
        let Value::Table(root) = &document.value else {
            return Self::default();
        };
        let defaults = root.get("defaults").map(|node| &node.value);
        let says = |key: &str| matches!(defaults, Some(Value::Table(all)) if all.contains_key(key));
        Self {
            of_tools: says("builtin_tools"),
            of_prompt: says("identity_prompt") || root.contains_key("identity_prompt"),
        }
    }

    /// Says the rest of a model, unless it changes one of the built-in catalog.
    pub(crate) fn complete(self, id: &str, settings: &mut Entries, origin: &Origin) {
        if is_built_in(id) {
            return;
        }
        if !self.of_tools {
            default(settings, "builtin_tools", Value::Flag(false), origin);
        }
        if !self.of_prompt {
            default(settings, "identity_prompt", Value::Flag(false), origin);
        }
    }
}

/// Completes all models of a catalog file.
pub(crate) fn complete(document: &mut Node) {
    let says = CatalogSays::read(document);
    let Value::Table(root) = &mut document.value else {
        return;
    };
    let Some(Value::List(models)) = root.get_mut("models").map(|node| &mut node.value) else {
        return;
    };
    for model in models {
        let origin = model.origin.clone();
        let Value::Table(settings) = &mut model.value else {
            continue;
        };
        if let Some(id) = settings.get("id").and_then(|id| as_text(&id.value)) {
            says.complete(&id, settings, &origin);
        }
    }
}

fn default(settings: &mut Entries, key: &str, value: Value, origin: &Origin) {
    let origin = origin.clone();
    let absent = || Node { origin, value };
    settings.entry(key.to_owned()).or_insert_with(absent);
}

fn prices(listed: &ListedModel, origin: &Origin) -> Entries {
    let prices = PRICES.iter().filter_map(|key| {
        let price = listed.settings.get(*key)?.clone();
        Some(((*key).to_owned(), price.with_origin(origin)))
    });
    prices.collect()
}

fn add_names(
    aliases: &mut Entries,
    id: &str,
    names: &Node,
    at: usize,
    mistakes: &mut Vec<Mistake>,
) {
    let Value::List(items) = &names.value else {
        let message = format!("`models[{at}].aliases` must be a list of names");
        return mistakes.push(mistake(names, &message));
    };
    for item in items {
        let Some(name) = as_text(&item.value) else {
            let message = format!("`models[{at}].aliases` must be a list of names");
            mistakes.push(mistake(item, &message));
            continue;
        };
        let target = Node {
            origin: item.origin.clone(),
            value: Value::Text(id.to_owned()),
        };
        if aliases.insert(name.clone(), target).is_some() {
            mistakes.push(mistake(item, &format!("`{name}` is an alias already")));
        }
    }
}

/// Adds them to those of `[models.aliases]`.
fn add_aliases(root: &mut Entries, aliases: Entries, mistakes: &mut Vec<Mistake>) {
    let empty = || table(Entries::new(), &Origin::Absent);
    let models = root.entry("models".into()).or_insert_with(empty);
    let Value::Table(models) = &mut models.value else {
        return; // reported when it is read
    };
    let known = models.entry("aliases".into()).or_insert_with(empty);
    let Value::Table(known) = &mut known.value else {
        return;
    };
    for (name, target) in aliases {
        match known.entry(name) {
            Entry::Occupied(known) => {
                let message = format!("`{}` is an alias already", known.key());
                mistakes.push(mistake(&target, &message));
            }
            Entry::Vacant(free) => {
                free.insert(target);
            }
        }
    }
}

impl OwnModels {
    /// Names the entry that was written instead of the deployment that was made of it.
    pub(crate) fn name_entries(&self, mistakes: &mut [Mistake]) {
        for mistake in mistakes {
            for (deployment, model) in &self.deployments {
                let made = format!("`deployments[{deployment}]");
                if mistake.message.contains(&made) {
                    mistake.message = mistake.message.replace(&made, &format!("`models[{model}]"));
                    break;
                }
            }
        }
    }
}

fn table(entries: Entries, origin: &Origin) -> Node {
    Node {
        origin: origin.clone(),
        value: Value::Table(entries),
    }
}

fn mistake(node: &Node, message: &str) -> Mistake {
    Mistake {
        origin: node.origin.clone(),
        message: message.to_owned(),
    }
}
