//! The routes of the pages, read from their source, so that a test can be complete.

use std::{collections::BTreeSet, fs, path::Path};

/// The paths with a POST handler, as the routers in `src/portal` name them.
pub fn posted_in_portal() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/portal")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(path).unwrap();
                let routes = text.split(".route(").skip(1);
                found.extend(routes.filter_map(|route| posted(&text, route)));
            }
        }
    }
    found
}

/// The path of a call of `route`, from its arguments on, if it handles POST. The path may be a constant of the file.
fn posted(file: &str, route: &str) -> Option<String> {
    let mut depth = 1;
    let end = route.find(|letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth == 0
    });
    let (path, handlers) = route[..end?].split_once(',')?;
    if !handlers.contains("post(") {
        return None;
    }
    let path = path.trim();
    let literal = if path.starts_with('"') {
        path
    } else {
        let (_, value) = file.split_once(&format!("const {path}: &str = ")).unwrap();
        value.split(';').next().unwrap()
    };
    Some(literal.trim_matches('"').to_owned())
}
