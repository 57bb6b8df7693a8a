//! `tollgate export` beside a gateway that serves.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::{Value, json};

use crate::support::{
    Load, Serving,
    csv::parse,
    process::{run, text},
    stores,
};

/// Exports from the store of the gateway in this folder. Returns the exit code, the output and the messages.
pub async fn export(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let config = folder.join("tollgate.toml").display().to_string();
    let arguments: Vec<_> = arguments
        .iter()
        .map(|argument| (*argument).to_owned())
        .collect();
    let exported = tokio::task::spawn_blocking(move || {
        let mut all = vec!["export", "--config", &config];
        all.extend(arguments.iter().map(String::as_str));
        run(&all, &[])
    });
    let exported = exported.await.unwrap();
    let (stdout, stderr) = (text(&exported.stdout), text(&exported.stderr));
    (exported.status.code(), stdout, stderr)
}

/// The JSON lines of an export.
pub async fn rows(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let arguments = [arguments, &["--format", "jsonl"]].concat();
    let (code, stdout, stderr) = export(folder, &arguments).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
    let rows = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    rows.collect()
}

pub fn field<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} of {row}"))
}

/// Waits until this many calls are posted, and returns their request IDs.
async fn posted(folder: &Path, count: usize) -> BTreeSet<String> {
    loop {
        let posted = stores::texts(folder, "SELECT request_id FROM calls").await;
        if posted.len() >= count {
            return posted.into_iter().collect();
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Exports while calls go on have every call that was posted before, none twice, and each as it is in the end.
#[tokio::test(flavor = "multi_thread")]
async fn exports_under_load_agree_with_the_ledger_afterwards() {
    let serving = Serving::start(60).await;
    let load = Load::start(&serving, 4);
    let folder = serving.folder().to_owned();
    let mut during = Vec::new();
    for count in [50, 150] {
        let before = posted(&folder, count).await;
        let calls = rows(&folder, &["calls"]).await;
        let ids: BTreeSet<_> = calls.iter().map(|row| field(row, "request_id")).collect();
        assert_eq!(ids.len(), calls.len(), "no call twice");
        let lost: Vec<_> = before
            .iter()
            .filter(|id| !ids.contains(id.as_str()))
            .collect();
        assert!(lost.is_empty(), "{lost:?}");
        during.push(("calls", calls));
        during.push(("ledger", rows(&folder, &["ledger"]).await));
    }
    let answered = load.stop().await;
    let ended = serving.process.terminated().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // The folder goes with `serving`, whose process has ended.
    let mut last = BTreeMap::new();
    for what in ["calls", "ledger", "usage"] {
        last.insert(what, rows(&folder, &[what]).await);
    }
    for (what, rows) in during {
        let all: BTreeSet<String> = last[what].iter().map(Value::to_string).collect();
        for row in rows {
            assert!(all.contains(&row.to_string()), "{what} has changed: {row}");
        }
    }
    let calls = &last["calls"];
    let exported: BTreeSet<_> = calls.iter().map(|row| field(row, "request_id")).collect();
    assert_eq!(exported, answered.iter().map(String::as_str).collect());
    let ends = calls.iter().map(|row| row["ended_at_ms"].as_i64().unwrap());
    assert!(ends.is_sorted(), "in the order in which they ended");

    let sum = |rows: &[Value], name: &str| -> i64 {
        rows.iter().filter_map(|row| row[name].as_i64()).sum()
    };
    let mut balance = 0;
    for entry in &last["ledger"] {
        balance += entry["delta_nano_usd"].as_i64().unwrap();
        assert_eq!(entry["balance_after_nano_usd"], balance, "{entry}");
    }
    let charges = last["ledger"]
        .iter()
        .filter(|entry| entry["kind"] == "charge");
    let charges: BTreeSet<_> = charges.map(|entry| field(entry, "call")).collect();
    assert_eq!(
        charges,
        calls.iter().map(|row| field(row, "call")).collect()
    );
    assert_eq!(
        sum(&last["usage"], "cost_nano_usd"),
        sum(calls, "cost_nano_usd")
    );
    assert_eq!(
        sum(&last["usage"], "calls"),
        i64::try_from(calls.len()).unwrap()
    );
    assert_eq!(100_000_000_000 - balance, sum(calls, "cost_nano_usd"));
}

/// Every column of the tables, by its name, and the same values in both formats.
#[tokio::test(flavor = "multi_thread")]
async fn both_formats_have_every_column() {
    let serving = Serving::start(60).await;
    let tool = r#"[[sim tool=convert_units {"amount":"1","from":"ether","to":"wei"}]]"#;
    for (content, session) in [("Hello", None), (tool, Some("s-1"))] {
        let body = json!({ "model": "svc-standard", "messages": [{ "role": "user", "content": content }] });
        let mut request = serving.chat(&body);
        if let Some(session) = session {
            request = request.header("session-id", session);
        }
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
    let folder = serving.folder().to_owned();
    posted(&folder, 2).await;
    for (what, table) in [
        ("calls", "calls"),
        ("ledger", "ledger"),
        ("usage", "usage_days"),
    ] {
        let (code, csv, stderr) = export(&folder, &[what]).await;
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        let csv = parse(&csv);
        let header: Vec<_> = csv[0].iter().map(|name| name.clone().unwrap()).collect();
        let columns = if stores::are_shared() {
            format!(
                "SELECT column_name::text FROM information_schema.columns WHERE table_name = '{table}' \
                 AND table_schema = current_schema() ORDER BY ordinal_position"
            )
        } else {
            format!("SELECT name FROM pragma_table_info('{table}')")
        };
        let columns = stores::texts(&folder, &columns).await;
        let of_table = header
            .iter()
            .filter(|name| *name != "call" && *name != "session");
        assert_eq!(of_table.cloned().collect::<Vec<_>>(), columns, "{what}");

        let lines = rows(&folder, &[what]).await;
        assert_eq!(lines.len(), csv.len() - 1, "{what}");
        for (line, cells) in lines.iter().zip(&csv[1..]) {
            let names: Vec<_> = line.as_object().unwrap().keys().collect();
            assert_eq!(names, header.iter().collect::<Vec<_>>());
            for (name, cell) in header.iter().zip(cells) {
                let shown = match &line[name] {
                    Value::Null => None,
                    Value::String(text) => Some(text.clone()),
                    other => Some(other.to_string()),
                };
                assert_eq!(&shown, cell, "{name} of {what}");
            }
        }
    }
    let calls = rows(&folder, &["calls"]).await;
    assert_eq!(calls[0]["stream"], false);
    assert_eq!(calls[0]["detail"], Value::Null);
    assert_eq!(calls[0]["session"], Value::Null);
    assert_eq!(calls[1]["session"], "s-1");
    assert_eq!(calls[1]["detail"]["agent"]["session"], "s-1");
    let steps = calls[1]["detail"]["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 3, "{steps:?}");
    // As the pages and the API show it.
    for call in &calls {
        let details = format!("/operator/requests/{}", field(call, "call"));
        let shown = serving.get(&details).await;
        assert_eq!(field(&shown, "id"), field(call, "call"));
        assert_eq!(field(&shown, "request_id"), field(call, "request_id"));
    }
}
