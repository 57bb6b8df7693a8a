//! Which rows `tollgate export` selects, how it writes awkward ones, and how it ends.

use std::{io::Read as _, path::Path, process::Stdio};

use serde_json::Value;

use crate::{
    export::{export, field, rows},
    support::{
        Serving,
        csv::parse,
        process::{text, tollgate},
        stores,
    },
};

/// Numbers of calls are large: they begin with a time.
const FIRST_ID: i64 = 941_093_696_867_663_872;
/// 2020-02-01 and the days after it, in milliseconds.
const DAY_1: i64 = 1_580_515_200_000;
const DAY: i64 = 86_400_000;

/// Posts this many calls that ended from `from_ms` on, one each minute, with numbers from `first` on.
async fn post_calls(folder: &Path, account: &str, first: i64, count: i64, from_ms: i64) {
    let first = FIRST_ID + first;
    let sql = format!(
        "INSERT INTO calls (id, request_id, account_id, key_id, model, routed_model, stream, outcome, admitted_at_ms,
            ended_at_ms, reserved_tokens, held_nano_usd, worst_case_nano_usd, input_pico_usd, cached_input_pico_usd,
            output_pico_usd)
        WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count} - 1)
        SELECT {first} + n, 'posted-' || ({first} + n), '{account}', 'key_1', 'svc-pro', 'svc-pro', false,
            'provider_failed', {from_ms} + n * 60000, {from_ms} + n * 60000, 1, 1, 1, 1, 1, 1 FROM numbers"
    );
    stores::execute(folder, &sql).await;
}

fn numbers(rows: &[Value]) -> Vec<i64> {
    rows.iter()
        .map(|row| row["id"].as_i64().unwrap() - FIRST_ID)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_and_dates_select_rows() {
    let store = Serving::start(1).await;
    let (folder, account) = (store.folder(), store.account_id());
    let new = serde_json::json!({ "email": "b@example.com", "track": "business", "tier": "flex" });
    let second = store.post("/operator/accounts", new).await;
    let second = field(&second, "id");
    // The numbers are in the opposite order of the ends.
    for (day, first) in [(0, 400), (1, 300), (2, 200)] {
        post_calls(folder, account, first, 2, DAY_1 + day * DAY).await;
        post_calls(folder, second, first + 50, 1, DAY_1 + day * DAY + 1).await;
    }
    for (arguments, expected) in [
        (&[][..], &[400, 450, 401, 300, 350, 301, 200, 250, 201][..]),
        (&["--from", "2020-02-02"], &[300, 350, 301, 200, 250, 201]),
        (&["--to", "2020-02-02"], &[400, 450, 401]),
        (
            &["--from", "2020-02-02", "--to", "2020-02-03"],
            &[300, 350, 301],
        ),
        (
            &[
                "--from",
                "2020-02-02T01:00:00+01:00",
                "--to",
                "2020-02-02T00:01:00Z",
            ],
            &[300, 350],
        ),
        (&["--account", second], &[450, 350, 250]),
        (
            &[
                "--account",
                second,
                "--from",
                "2020-02-02",
                "--to",
                "2020-02-03",
            ],
            &[350],
        ),
        (&["--from", "2021-01-01", "--to", "2022-01-01"], &[]),
    ] {
        let arguments = [&["calls"], arguments].concat();
        let found = rows(folder, &arguments).await;
        assert_eq!(numbers(&found), expected, "{arguments:?}");
    }

    let days = (1..=3).flat_map(|day| {
        let values = format!(
            "'2020-02-0{day}', 'svc-pro', 'key_1', 'default', 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1"
        );
        [account, second].map(|account| format!("('{account}', {values})"))
    });
    let days = days.collect::<Vec<_>>().join(", ");
    stores::execute(folder, &format!("INSERT INTO usage_days VALUES {days}")).await;
    let mut accounts = [account, second];
    accounts.sort_unstable();
    for (arguments, expected) in [
        (
            &[][..],
            vec![
                accounts[0],
                accounts[0],
                accounts[0],
                accounts[1],
                accounts[1],
                accounts[1],
            ],
        ),
        (
            &["--from", "2020-02-02", "--to", "2020-02-03"],
            accounts.to_vec(),
        ),
        (
            &["--account", second, "--from", "2020-02-02"],
            vec![second, second],
        ),
    ] {
        let arguments = [&["usage"], arguments].concat();
        let found = rows(folder, &arguments).await;
        let found: Vec<_> = found.iter().map(|row| field(row, "account_id")).collect();
        assert_eq!(found, expected, "{arguments:?}");
    }

    // The grant is of today.
    let entry = "VALUES (100000, '{account}', 'expiry', 'grant_1', -7, -7, 1580601600)";
    let entry = entry.replace("{account}", second);
    stores::execute(folder, &format!("INSERT INTO ledger_entries {entry}")).await;
    for (arguments, expected) in [
        (
            &["--from", "2020-02-02", "--to", "2020-02-03"][..],
            vec!["expiry"],
        ),
        (&["--to", "2020-02-02"], vec![]),
        (&["--from", "2020-02-03"], vec!["grant"]),
        (&["--account", second], vec!["expiry"]),
    ] {
        let arguments = [&["ledger"], arguments].concat();
        let found = rows(folder, &arguments).await;
        let kinds: Vec<_> = found.iter().map(|row| field(row, "kind")).collect();
        assert_eq!(kinds, expected, "{arguments:?}");
    }
}

/// Many pages of rows, several of which end in the same millisecond, and each comes once.
#[tokio::test(flavor = "multi_thread")]
async fn many_pages_have_every_row_once() {
    let store = Serving::start(1).await;
    let folder = store.folder();
    for first in [0, 10_000, 20_000] {
        post_calls(folder, store.account_id(), first, 2_500, DAY_1).await;
    }
    let mut found = numbers(&rows(folder, &["calls"]).await);
    let ordered = [2_499, 12_499, 22_499];
    assert_eq!(found[found.len() - 3..], ordered);
    found.sort_unstable();
    let expected = [0..2_500, 10_000..12_500, 20_000..22_500]
        .into_iter()
        .flatten();
    assert_eq!(found, expected.collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn awkward_texts_come_back_as_they_are() {
    let store = Serving::start(1).await;
    let folder = store.folder();
    let texts = [
        "a,b",
        "say \"hi\"",
        "two\nlines",
        "two\r\nlines, \"quoted\"\n",
        "",
        " ",
        "=HYPERLINK(\"http://example.com\")",
        "it's \\n ä \u{1F980}",
        "\t",
    ];
    post_calls(folder, store.account_id(), 0, 9, DAY_1).await;
    for (id, text) in (FIRST_ID..).zip(texts) {
        let text = text.replace('\'', "''");
        let sql = format!(
            "UPDATE calls SET request_id = '{text}', failure = '{text}', detail = '{{\"attempts\": [{id}]}}' \
             WHERE id = {id}"
        );
        stores::execute(folder, &sql).await;
    }
    let (code, csv, stderr) = export(folder, &["calls"]).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let csv = parse(&csv);
    let column = |name: &str| {
        let name = Some(name.to_owned());
        csv[0].iter().position(|column| *column == name).unwrap()
    };
    let lines = rows(folder, &["calls"]).await;
    assert_eq!((csv.len(), lines.len()), (10, 9));
    for ((text, row), line) in texts.iter().zip(&csv[1..]).zip(&lines) {
        for name in ["request_id", "failure"] {
            assert_eq!(row[column(name)].as_deref(), Some(*text));
            assert_eq!(field(line, name), *text);
        }
        assert_eq!(
            row[column("upstream")],
            None,
            "what is missing is an empty cell"
        );
        let detail = row[column("detail")].as_deref().unwrap();
        assert_eq!(
            line["detail"],
            serde_json::from_str::<Value>(detail).unwrap()
        );
        assert_eq!(line["detail"]["attempts"], serde_json::json!([line["id"]]));
    }
}

/// `tollgate export … | head`
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_ends_the_export_quietly() {
    let store = Serving::start(1).await;
    // More than a pipe holds.
    post_calls(store.folder(), store.account_id(), 0, 5_000, DAY_1).await;
    let config = store.folder().join("tollgate.toml").display().to_string();
    let ended = tokio::task::spawn_blocking(move || {
        let arguments = ["export", "calls", "--config", &config];
        let mut command = tollgate(&arguments, &[]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut read = [0; 100];
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_exact(&mut read).unwrap();
        assert!(read.starts_with(b"call,id,entry_seq,"));
        drop(pipe);
        child.wait_with_output().unwrap()
    });
    let ended = ended.await.unwrap();
    assert_eq!(
        (ended.status.code(), text(&ended.stderr).as_str()),
        (Some(0), "")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_complete_or_not_there() {
    let store = Serving::start(1).await;
    let folder = store.folder();
    post_calls(folder, store.account_id(), 0, 5, DAY_1).await;
    let file = folder.join("calls.csv");
    let output = file.to_str().unwrap();
    let exported = export(folder, &["calls", "--output", output]).await;
    assert_eq!(
        exported,
        (Some(0), format!("{output}: 5 rows\n"), String::new())
    );
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        (Some(0), written, String::new()),
        export(folder, &["calls"]).await
    );

    let second = folder.join("second.csv");
    let second = second.to_str().unwrap();
    for (arguments, message) in [
        (
            ["calls", "--output", output].to_vec(),
            "exists and is not overwritten",
        ),
        (
            vec!["calls", "--output", second, "--account", "acct_nobody"],
            "there is no account `acct_nobody`; `tollgate account list` shows them",
        ),
        (
            vec![
                "calls",
                "--output",
                second,
                "--from",
                "2020-02-02",
                "--to",
                "2020-02-02",
            ],
            "--from must be before --to",
        ),
        (
            vec![
                "usage",
                "--output",
                second,
                "--from",
                "2020-02-02T08:00:00Z",
            ],
            "usage is stored by day",
        ),
    ] {
        let (code, stdout, stderr) = export(folder, &arguments).await;
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(stderr.contains(message), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    let (code, _, stderr) = export(folder, &["calls", "--from", "yesterday"]).await;
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("expected a day since 1970 such as 2026-11-01"),
        "{stderr}"
    );
    let left = std::fs::read_dir(folder).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut left = left.filter(|name| name.contains("csv")).collect::<Vec<_>>();
    left.sort();
    assert_eq!(left, ["calls.csv"]);
}
