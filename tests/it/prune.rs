//! `tollgate prune` beside a gateway that serves, and `store.keep_months`.

use serde_json::json;

use crate::support::{
    Serving,
    process::{run, text},
    stores,
};

/// The first milliseconds of February and March 2020.
const FEBRUARY: i64 = 1_580_515_200_000;
const MARCH: i64 = 1_583_020_800_000;

/// Stores calls of that time that failed, and an entry of a grant.
async fn add_old_calls(store: &Serving) {
    let account = store.account_id();
    for (at_ms, count) in [(FEBRUARY, 3), (MARCH, 2)] {
        let sql = format!(
            "INSERT INTO calls (id, request_id, account_id, key_id, model, routed_model, stream, outcome,
                admitted_at_ms, ended_at_ms, reserved_tokens, held_nano_usd, worst_case_nano_usd, input_pico_usd,
                cached_input_pico_usd, output_pico_usd)
            WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count} - 1)
            SELECT {first} + n, 'old', '{account}', 'key_1', 'svc-pro', 'svc-pro', false, 'provider_failed',
                {at_ms}, {at_ms}, 1, 1, 1, 1, 1, 1 FROM numbers",
            first = at_ms << 19,
        );
        stores::execute(store.folder(), &sql).await;
    }
    let then = format!("UPDATE ledger_entries SET at = {}", FEBRUARY / 1_000);
    stores::execute(store.folder(), &then).await;
}

async fn old_calls(store: &Serving) -> usize {
    let sql = "SELECT request_id FROM calls WHERE request_id = 'old'";
    stores::texts(store.folder(), sql).await.len()
}

/// Prunes the store of the gateway; returns the output or the error.
async fn prune(store: &Serving, arguments: &[&str]) -> Result<String, String> {
    let config = store.folder().join("tollgate.toml").display().to_string();
    let arguments: Vec<_> = arguments.iter().map(|&one| one.to_owned()).collect();
    let pruned = tokio::task::spawn_blocking(move || {
        let mut all = vec!["prune", "--config", &config];
        all.extend(arguments.iter().map(String::as_str));
        run(&all, &[])
    });
    let pruned = pruned.await.unwrap();
    if pruned.status.success() {
        Ok(text(&pruned.stdout))
    } else {
        Err(text(&pruned.stderr))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_months_are_removed_beside_a_gateway() {
    let store = Serving::start(1).await;
    add_old_calls(&store).await;
    let body =
        json!({ "model": "svc-standard", "messages": [{ "role": "user", "content": "hi" }] });
    assert_eq!(store.chat(&body).send().await.unwrap().status(), 200);

    let removed = prune(&store, &["--before", "2020-03-20"]).await.unwrap();
    let expected = "Removed 3 calls and 1 ledger entries from before 2020-03-01.";
    assert!(removed.starts_with(expected), "{removed}");
    assert_eq!(old_calls(&store).await, 2, "March is kept");
    let again = prune(&store, &["--before", "2020-03-20"]).await.unwrap();
    assert_eq!(
        again.trim(),
        "There are no calls or entries from before 2020-03-01."
    );

    let audit = store.post("/operator/audit", json!({})).await;
    assert_eq!(audit["violations"], json!([]));
    let opening = "SELECT ref FROM ledger_entries WHERE kind = 'opening'";
    assert_eq!(stores::texts(store.folder(), opening).await, ["2020-03-01"]);
    assert_eq!(store.chat(&body).send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_pruned_is_explained() {
    let store = Serving::start(1).await;
    for (arguments, expected) in [
        (
            &["--before", "2999-01-01"][..],
            "2999-01-01 is in the future; the latest date is",
        ),
        (
            &["--before", "last year"],
            "`last year` is no date; write it like",
        ),
    ] {
        let error = prune(&store, arguments).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    if !stores::are_shared() {
        let keep = ["--before", "2020-03-01", "--keep-tables"];
        let error = prune(&store, &keep).await.unwrap_err();
        assert!(error.contains("--keep-tables is for PostgreSQL"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_keeps_the_configured_months() {
    let store = Serving::start(1).await;
    add_old_calls(&store).await;
    let keep = [("TOLLGATE__STORE__KEEP_MONTHS", "1")];
    store.process.signal("TERM");
    let (_, store) = store.ended_and_restarted_after(async {}, &keep).await;
    while old_calls(&store).await > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let audit = store.post("/operator/audit", json!({})).await;
    assert_eq!(audit["violations"], json!([]));
}
