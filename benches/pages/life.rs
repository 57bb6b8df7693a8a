//! What an account has besides its requests: payments, members, budgets, refused requests, versions of the configuration.

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tollgate::{
    backoffice::{NewPerson, Role, TeamRole},
    server::Running,
};

use crate::{OPERATOR_TOKEN, fill::Filled};

const PAYMENTS: usize = 60;
const MEMBERS: usize = 20;
const REFUSED: usize = 1_000;
/// The number of a receipt.
pub const RECEIPT: &str = "R-2026-000007";

/// Paid checkouts of the account, as SQL.
pub fn payments(filled: &Filled) -> String {
    let rows: Vec<_> = (0..PAYMENTS)
        .map(|number| {
            let at = 1_790_000_000 + 3_600 * number;
            format!(
                "('chk_{number:024}', 'stripe', 'cs_{number}', '{}', 'bench@example.com', 25000000000, 25000000000, {at}, \
                 {at}, NULL, 'grant_{number}', 0, NULL, NULL, 'R-2026-{number:06}')",
                filled.large
            )
        })
        .collect();
    format!(
        "INSERT INTO backoffice_checkouts (id, provider, session, account_id, person, amount, paid_amount, created_at, \
         paid_at, expires_at, grant_id, automatic, failed_at, failure, receipt) VALUES {}",
        rows.join(", ")
    )
}

/// Members, budgets and as many refused requests as are kept.
pub async fn live(running: &Running, filled: &Filled) {
    for number in 0..MEMBERS {
        let new = NewPerson {
            email: format!("member{number}@example.com"),
            name: None,
            password: None,
            role: Role::Customer,
            account_id: filled.large.clone(),
            team_role: TeamRole::Developer,
            now: 0,
        };
        running.gateway.backoffice.add_person(new).await.unwrap();
    }
    let account = &filled.large;
    for (scope, id) in [("account", account), ("key", &filled.key)] {
        let budget = json!({ "account": account, "scope": scope, "id": id, "amount": "1000000", "period": "month" });
        operate(running, Method::PUT, "budgets", &budget).await;
    }
    let new = json!({ "name": "refused" });
    let keys = format!("accounts/{account}/keys");
    let made = operate(running, Method::POST, &keys, &new).await;
    let client = Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/v1/chat/completions", running.origin);
    for number in 0..REFUSED {
        let body = json!({ "model": format!("none-{}", number % 7), "messages": [{ "role": "user", "content": "Hi" }] });
        let request = client.post(&url).bearer_auth(made["key"].as_str().unwrap());
        let answer = request.json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 404);
    }
    change_configuration(running).await;
}

/// Makes twenty versions of the configuration; the last one has another price and twenty aliases.
async fn change_configuration(running: &Running) {
    let model = "min_tier = \"standard\"\ninput = \"2.00\"\noutput = \"90.00\"";
    let mut aliases = serde_json::Map::new();
    for based_on in 0..20 {
        let alias = json!({ "set": "model = \"svc-standard\"" });
        aliases.insert(format!("name-{based_on}"), alias);
        let models = json!({ "svc-standard": { "set": model } });
        let changes = json!({ "models": models, "aliases": aliases });
        let body = json!({ "changes": changes, "based_on": based_on, "note": "a benchmark" });
        operate(running, Method::PUT, "config", &body).await;
    }
}

async fn operate(running: &Running, method: Method, path: &str, body: &Value) -> Value {
    let client = Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/operator/{path}", running.operator);
    let request = client.request(method, &url).bearer_auth(OPERATOR_TOKEN);
    let answer = request.json(body).send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert!(status.is_success(), "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}
