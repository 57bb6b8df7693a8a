use std::{collections::BTreeSet, fs, path::Path};

use super::*;

const APIS: [Api; 2] = [Api::Public, Api::Operator];

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn every_file_in_the_folders_is_part_of_a_description() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/openapi");
    let mut found = BTreeSet::new();
    for name in ["public", "operator", "shared"] {
        for file in fs::read_dir(folder.join(name)).unwrap() {
            let file = file.unwrap().file_name().into_string().unwrap();
            found.insert(format!("{name}/{file}"));
        }
    }
    let named = APIS.iter().flat_map(|api| api.files());
    let named: BTreeSet<_> = named.map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, named);
}

#[test]
fn both_descriptions_are_assembled() {
    for api in APIS {
        let files = api.files().map(|(name, text)| (*name, *text));
        let document = assemble(files).unwrap();
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(api.text(), document.to_string());
    }
}

#[test]
fn every_component_is_referred_to() {
    for (own, apis) in [
        (PUBLIC, &APIS[..1]),
        (OPERATOR, &APIS[1..]),
        (SHARED, &APIS[..]),
    ] {
        let documents: Vec<_> = apis.iter().map(|api| api.document()).collect();
        for (file, text) in own {
            let components = parsed(text)["components"].take();
            for (kind, of_kind) in components.as_object().into_iter().flatten() {
                for name in of_kind.as_object().unwrap().keys() {
                    let pointer = format!("/components/{kind}/{name}");
                    let has = |document: &Value| document.pointer(&pointer).is_some();
                    assert!(
                        documents.iter().any(has),
                        "{file}: nothing refers to {pointer}"
                    );
                }
            }
        }
    }
}

#[test]
fn operations_have_ids_of_their_own_and_tags_of_the_head() {
    for api in APIS {
        let document = api.document();
        let tags = document["tags"].as_array().unwrap().iter();
        let tags: Vec<_> = tags.map(|tag| &tag["name"]).collect();
        let mut ids = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                if method == "parameters" {
                    continue;
                }
                let id = operation["operationId"].as_str().unwrap_or_default();
                assert!(!id.is_empty(), "{method} {path} has no ID");
                assert!(ids.insert(id), "{id} is there twice");
                let of = operation["tags"].as_array().unwrap();
                assert!(of.iter().all(|tag| tags.contains(&tag)), "{id}: {of:?}");
            }
        }
    }
}

const HEAD: (&str, &str) = (
    "head",
    r#"{"info": {"title": "T"}, "responses_below": {"/": {"500": {"a": 1}}, "/b": {"500": {"b": 1}, "200": {}}}}"#,
);

#[test]
fn fragments_are_merged_and_what_is_unused_is_left_out() {
    let one = r##"{"paths": {"/a": {"get": {"responses": {"200": {"$ref": "#/components/responses/X"}}}}},
        "components": {"responses": {"X": {"of": "#/components/schemas/Y"}}}}"##;
    let other = r#"{"paths": {"/b/c": {"get": {"responses": {"200": {"own": 1}}}}},
        "components": {"schemas": {"Y": {}, "Z": {}}, "headers": {"H": {}}}}"#;
    let document = assemble([HEAD, ("one", one), ("other", other)]).unwrap();
    assert_eq!(
        document["paths"].to_string(),
        r##"{"/a":{"get":{"responses":{"200":{"$ref":"#/components/responses/X"},"500":{"a":1}}}},"/b/c":{"get":{"responses":{"200":{"own":1},"500":{"b":1}}}}}"##
    );
    assert_eq!(
        document["components"].to_string(),
        r##"{"responses":{"X":{"of":"#/components/schemas/Y"}},"schemas":{"Y":{}}}"##
    );
}

#[test]
fn what_is_there_twice_or_not_at_all_is_an_error() {
    let path = r#"{"paths": {"/a": {}}}"#;
    let schema = r#"{"components": {"schemas": {"Y": {}}}}"#;
    let dangling = r##"{"paths": {"/a": {"$ref": "#/components/schemas/N"}}}"##;
    for (files, error) in [
        (
            vec![("one", path), ("two", path)],
            "two: `/a` is in another file too",
        ),
        (
            vec![("one", schema), ("two", schema)],
            "two: `Y` is in another file too",
        ),
        (
            vec![("one", r#"{"info": {}}"#)],
            "one: `info` belongs in the head",
        ),
        (
            vec![("one", dangling)],
            "there is no #/components/schemas/N",
        ),
    ] {
        let files = std::iter::once(HEAD).chain(files);
        assert_eq!(assemble(files), Err(error.to_owned()));
    }
}
