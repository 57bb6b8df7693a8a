//! `tollgate import` as an operator runs it, and what a gateway shows before and after it.

use std::path::Path;

use reqwest::Method;
use serde_json::Value;

use super::{
    TestGateway,
    process::{run, text},
};

/// Exit code and output of an import.
pub struct Imported {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Imported {
    #[track_caller]
    pub fn assert_ok(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        &self.stdout
    }

    /// Asserts that it failed with a message that contains these words.
    #[track_caller]
    pub fn assert_refused(&self, words: &str) {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        let stderr = &self.stderr;
        let mut messages = stderr.split("tollgate: ").skip(1);
        assert!(
            messages.any(|message| message.contains(words)),
            "{words}: {stderr}"
        );
    }
}

/// Imports the files of a gateway in this folder.
pub fn import(folder: &Path, database: &str) -> Imported {
    import_with(folder, database, &[], &[])
}

pub fn import_with(
    folder: &Path,
    database: &str,
    more: &[&str],
    environment: &[(&str, &str)],
) -> Imported {
    let from = format!("sqlite:{}", folder.join("tollgate.db").display());
    let arguments = ["import", "--from", &from, "--to", database];
    let done = run(&[&arguments, more].concat(), environment);
    Imported {
        code: done.status.code(),
        stdout: text(&done.stdout),
        stderr: text(&done.stderr),
    }
}

/// What the operator API shows of these accounts and requests, and of all settings.
pub async fn shown(
    gateway: &TestGateway,
    accounts: &[String],
    requests: &[&str],
) -> Vec<(String, Value)> {
    let mut paths: Vec<String> = ["limits", "models", "analytics"]
        .map(|path| format!("/operator/{path}"))
        .into();
    for account in accounts {
        let lists = ["", "/keys", "/grants", "/usage", "/people", "/invitations"];
        paths.extend(lists.map(|list| format!("/operator/accounts/{account}{list}")));
    }
    let requests = requests.iter();
    paths.extend(requests.map(|id| format!("/operator/requests/{id}")));
    let mut shown = Vec::new();
    for path in paths {
        let answer = gateway.operate(Method::GET, &path, None).await;
        shown.push((path, answer.assert_ok().clone()));
    }
    shown
}
