//! Entries of a file with a catalog of its own, and changes of them.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use tempfile::TempDir;

use super::*;
use crate::{base::checked_toml, config::own_models::OwnModels};

const CATALOG: &str = r#"
[defaults]
max_output = 5000
request = "0.5"
[[models]]
id = "svc-pro"
input = "9"
output = "9"
[[models]]
id = "house"
input = "1"
output = "2"
"#;

/// A file with this catalog and two deployments that connect the same.
fn base(folder: &TempDir) -> Arc<Base> {
    base_with(folder, CATALOG)
}

fn base_with(folder: &TempDir, text: &str) -> Arc<Base> {
    let catalog = folder.path().join("catalog.toml");
    std::fs::write(&catalog, text).unwrap();
    let text = format!(
        "catalog.file = {:?}\nproviders.a.kind = \"simulator\"\n\
         [[deployments]]\nmodel = \"*\"\nprovider = \"a\"\n\
         [[deployments]]\nmodel = \"*\"\nprovider = \"a\"\nweight = 2\n",
        catalog.display()
    );
    let token = "7c1f9a04e6b25d83d0487ae1936bf25c".to_owned();
    let environment = BTreeMap::from([("TOLLGATE_OPERATOR_TOKEN".to_owned(), token)]);
    let document = checked_toml::parse(&text).unwrap();
    Arc::new(Base::new(
        "test.toml",
        Path::new(""),
        document,
        OwnModels::default(),
        &environment,
    ))
}

fn named<'a>(entries: &'a [Entry], name: &str) -> &'a Entry {
    entries.iter().find(|entry| entry.name == name).unwrap()
}

fn changed(kind: Kind, name: &str, set: Option<&str>) -> Changes {
    let mut changes = Changes::default();
    let change = Change {
        set: set.map(str::to_owned),
        replaces: None,
    };
    changes.of_mut(kind).insert(name.to_owned(), change);
    changes
}

/// The text of an entry can be applied as it is shown: nothing of the model changes.
#[test]
fn every_model_is_the_same_after_it_was_saved_unchanged() {
    let folder = TempDir::new().unwrap();
    let base = base(&folder);
    let before = base.read(&Revision::default()).unwrap();
    let mut all = Changes::default();
    for entry in base.entries(Kind::Model, &Changes::default()) {
        let set = entry.original_text().map(|text| text + "# changed\n");
        let change = Change {
            set,
            replaces: None,
        };
        all.models.insert(entry.name, change);
    }
    assert_eq!(all.models.len(), 18);
    let after = base.read(&Revision {
        number: 1,
        changes: Arc::new(all),
    });
    let after = after.unwrap();
    let shown = |config: &crate::config::Config| {
        let models = config.catalog.models();
        let models = models.map(|model| {
            let mut model = (**model).clone();
            if model.is_hybrid() {
                model.quality_tier = 0; // A hybrid is never a target, so its tier has no effect.
            }
            format!("{model:?}")
        });
        models.collect::<Vec<_>>()
    };
    for (was, is) in shown(&before).iter().zip(shown(&after)) {
        assert_eq!(*was, is);
    }
}

#[test]
fn entries_say_where_they_come_from() {
    let folder = TempDir::new().unwrap();
    let base = base(&folder);
    let changes = changed(Kind::Model, "house", Some("input = \"1\"\noutput = \"3\""));
    let changes = base.with_replaced(changes, &Changes::default());
    let models = base.entries(Kind::Model, &changes);
    for (name, source) in [
        ("svc-standard", Source::BuiltIn),
        ("svc-pro", Source::File),
        ("house", Source::Changed),
    ] {
        assert_eq!(named(&models, name).source(), source, "{name}");
    }
    assert!(!named(&models, "house").is_outdated());
    let base = base_with(
        &folder,
        &CATALOG.replace("output = \"2\"", "output = \"4\""),
    );
    assert!(named(&base.entries(Kind::Model, &changes), "house").is_outdated());
    let removed = changed(Kind::Model, "house", None);
    assert_eq!(
        named(&base.entries(Kind::Model, &removed), "house").source(),
        Source::Removed
    );
}

#[test]
fn what_equals_the_file_is_no_change() {
    let folder = TempDir::new().unwrap();
    let base = base(&folder);
    let same = changed(
        Kind::Model,
        "house",
        Some("output = \"2\"\n\ninput = '1' # as it was"),
    );
    assert!(base.with_replaced(same, &Changes::default()).is_empty());
    let nothing = changed(Kind::Model, "nothing", None);
    assert!(base.with_replaced(nothing, &Changes::default()).is_empty());
}

#[test]
fn deployments_that_connect_the_same_are_told_apart() {
    let folder = TempDir::new().unwrap();
    let base = base(&folder);
    let entries = base.entries(Kind::Deployment, &Changes::default());
    let names: Vec<_> = entries.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, ["*@a", "*@a#2"]);
    let removed = changed(Kind::Deployment, "*@a", None);
    let read = base.read(&Revision {
        number: 1,
        changes: Arc::new(removed),
    });
    let weights: Vec<_> = read
        .unwrap()
        .deployments
        .iter()
        .map(|one| one.weight)
        .collect();
    assert_eq!(weights, [2]);
}

#[test]
fn the_environment_is_not_printed() {
    let folder = TempDir::new().unwrap();
    assert_eq!(format!("{:?}", base(&folder)), "Base(test.toml)");
}
