//! `/openapi.json`: it describes every route and no other, and what it describes can be sent. `support/described.rs`
//! compares the responses of all other tests with it.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tollgate::api::openapi::Api;

use crate::support::{
    Serving, TestGateway,
    described::{Described, Operation, Response, compare, compare_each_request, exchange},
    gateway::{OPERATOR_TOKEN, answer, hello},
    portal::Browser,
    process::{run, text},
    schema::{mismatches, resolve},
};

const METHODS: [Method; 5] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/api")
        .join(path);
    fs::read_to_string(path).unwrap()
}

fn paths(api: Api) -> BTreeSet<String> {
    let operations = Described::of(api).operations();
    operations
        .map(|operation| operation.path.to_owned())
        .collect()
}

/// Every text that begins with a slash: the routers have no others than paths.
///
/// Payment providers post to a path of their own (`/payments/stripe`), and people use the portal. Neither is an API for
/// the operator's customers, so neither is described.
#[test]
fn every_path_of_the_routers_is_described() {
    let stripe = source("../backoffice/payments/stripe.rs");
    assert!(stripe.contains("Some(\"/payments/stripe\")"));
    for api in [Api::Public, Api::Operator] {
        let mut paths = paths(api).into_iter();
        assert!(paths.all(|path| !path.starts_with("/payments") && !path.starts_with("/portal")));
    }
    for (api, router) in [
        (Api::Public, "public/router.rs"),
        (Api::Operator, "operator/mod.rs"),
    ] {
        let source = source(router);
        let texts = source.split("\"/").skip(1);
        let routed = texts.map(|text| format!("/{}", text.split('"').next().unwrap()));
        assert_eq!(routed.collect::<BTreeSet<_>>(), paths(api), "{router}");
    }
}

#[tokio::test]
async fn exactly_the_described_methods_are_served() {
    let gateway = TestGateway::start().await;
    for (api, address, token) in [
        (Api::Public, gateway.public, gateway.key.as_str()),
        (Api::Operator, gateway.operator, OPERATOR_TOKEN),
    ] {
        let described: BTreeSet<_> = Described::of(api)
            .operations()
            .map(|operation| (operation.path.to_owned(), operation.method.to_string()))
            .collect();
        for path in paths(api) {
            for method in METHODS {
                let url = format!(
                    "http://{address}{}",
                    path.replace("{n}", "1").replace(['{', '}'], "")
                );
                let request = gateway
                    .client
                    .request(method.clone(), url)
                    .bearer_auth(token);
                let (status, _, body) = exchange(request.body("[]")).await;
                let is_served = !(status == 404 && body.contains("\"route_not_found\""));
                let is_described = described.contains(&(path.clone(), method.to_string()));
                assert_eq!(is_served, is_described, "{method} {path}: {status} {body}");
            }
        }
    }
}

#[tokio::test]
async fn both_listeners_serve_their_description() {
    let gateway = TestGateway::start().await;
    let public = gateway.client.get(gateway.url("/openapi.json"));
    let public = answer(public).await; // needs no key
    assert_eq!(public.assert_ok(), &Api::Public.document());
    let url = format!("http://{}/openapi.json", gateway.operator);
    let refused = gateway.client.get(url).send().await.unwrap();
    assert_eq!(refused.status(), 401, "needs the token");
    let operator = gateway.operate(Method::GET, "/openapi.json", None).await;
    assert_eq!(operator.assert_ok(), &Api::Operator.document());
}

#[test]
fn the_command_prints_both_descriptions() {
    for (arguments, api) in [
        (&["openapi"][..], Api::Public),
        (&["openapi", "--operator"], Api::Operator),
    ] {
        let output = run(arguments, &[]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed, api.document());
    }
}

/// The bodies that an operation's examples have; one empty body if it takes none.
fn examples(operation: &Operation<'_>) -> Vec<Option<Value>> {
    let body = &operation.described["requestBody"];
    let body = match body.get("$ref") {
        Some(reference) => resolve(operation.document, reference),
        None => body,
    };
    let content = &body["content"]["application/json"];
    if content.is_null() {
        return vec![None];
    }
    let several = content["examples"].as_object().into_iter().flatten();
    let mut found: Vec<_> = several
        .map(|(_, example)| Some(example["value"].clone()))
        .collect();
    found.extend(content.get("example").map(|example| Some(example.clone())));
    for example in found.iter().flatten() {
        let wrong = mismatches(operation.document, &content["schema"], example);
        assert!(
            wrong.is_empty(),
            "{} {}: {wrong:?}",
            operation.method,
            operation.path
        );
    }
    let id = &operation.described["operationId"];
    assert!(!found.is_empty(), "{id} has no example of a request");
    if body["required"] != true {
        found.push(None);
    }
    found
}

/// Query parameters that have an example.
fn query(operation: &Operation<'_>) -> Vec<(String, String)> {
    let parameters = operation.described["parameters"]
        .as_array()
        .into_iter()
        .flatten();
    let parameters = parameters.map(|parameter| match parameter.get("$ref") {
        Some(reference) => resolve(operation.document, reference),
        None => parameter,
    });
    let parameters = parameters.filter(|parameter| parameter["in"] == "query");
    let with_example = parameters.filter_map(|parameter| {
        let value = match parameter.get("example")? {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some((parameter["name"].as_str().unwrap().to_owned(), value))
    });
    with_example.collect()
}

/// Sends a request and asserts that it succeeds as described.
async fn succeeds(operation: &Operation<'_>, request: RequestBuilder) -> String {
    let (status, _, body) = exchange(request).await;
    let (method, path) = (&operation.method, operation.path);
    assert!(
        (200..300).contains(&status),
        "{method} {path}: {status} {body}"
    );
    body
}

/// What an operator has, so that the IDs of examples can be replaced by real ones.
struct Things {
    account: String,
    key: String,
    project: String,
    budget: String,
    person: String,
    email: String,
    request: String,
}

fn new_email() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("person{number}@example.com")
}

impl Things {
    async fn make(gateway: &TestGateway) -> Self {
        let (account, key_secret) = gateway.account(crate::support::Plan::FLEX).await;
        let (key, _) = gateway.new_key(&account).await;
        let post = async |path: String, body: Value| {
            let made = gateway.operate(Method::POST, &path, Some(body)).await;
            made.assert_ok().clone()
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let of_account = format!("/operator/accounts/{account}");
        let project = post(format!("{of_account}/projects"), json!({ "name": "Spare" })).await;
        let budget =
            json!({ "account": account, "scope": "account", "amount": "5", "period": "day" });
        let budget = gateway
            .operate(Method::PUT, "/operator/budgets", Some(budget))
            .await;
        let invitations = format!("{of_account}/invitations");
        for _ in 0..2 {
            let invitation = json!({ "email": new_email() });
            let link = post(invitations.clone(), invitation).await;
            let joined = Browser::new(gateway)
                .join(link["link"].as_str().unwrap())
                .await;
            joined.assert_sent_to("/portal");
        }
        let email = new_email();
        post(invitations, json!({ "email": email })).await;
        let people = gateway
            .operate(Method::GET, &format!("{of_account}/people"), None)
            .await;
        let called = gateway.chat_as(&key_secret, &hello("svc-pro")).await;
        let request = called.headers["x-request-id"].to_str().unwrap().to_owned();
        Self {
            person: text(&people.assert_ok()["data"][0]["id"]),
            project: text(&project["id"]),
            budget: text(&budget.assert_ok()["id"]),
            account,
            key,
            email,
            request,
        }
    }

    /// The real ID for that of an example.
    fn real<'a>(&'a self, id: &'a str) -> &'a str {
        let (prefix, _) = id.split_once('_').unwrap_or_default();
        match prefix {
            "acct" => &self.account,
            "key" => &self.key,
            "proj" => &self.project,
            "budget" => &self.budget,
            "person" => &self.person,
            "req" | "call" => &self.request,
            _ => id,
        }
    }

    fn in_body(&self, body: Value) -> Value {
        match body {
            Value::String(text) => self.real(&text).into(),
            Value::Array(items) => items.into_iter().map(|item| self.in_body(item)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                fields
                    .map(|(name, value)| (name, self.in_body(value)))
                    .collect()
            }
            other => other,
        }
    }

    fn in_path(&self, path: &str) -> String {
        let parts = path.split('/').collect::<Vec<_>>();
        let real = parts.iter().enumerate().map(|(at, part)| match *part {
            "{email}" => &self.email,
            "{n}" => "1",
            "{id}" => match parts[at - 1] {
                "accounts" => &self.account,
                "keys" => &self.key,
                "projects" => &self.project,
                "budgets" => &self.budget,
                "people" | "members" => &self.person,
                "requests" => &self.request,
                "models" => "svc-pro",
                other => panic!("the test does not know {other}"),
            },
            other => other,
        });
        real.collect::<Vec<_>>().join("/")
    }
}

#[tokio::test]
async fn every_described_operator_request_succeeds() {
    let gateway = TestGateway::start().await;
    // A version to show and to go back to.
    let aliases = json!({ "aliases": { "spare": { "set": "model = \"svc-pro\"" } } });
    let change = json!({ "changes": aliases, "based_on": 0 });
    let change = gateway
        .operate(Method::PUT, "/operator/config", Some(change))
        .await;
    change.assert_ok();
    for operation in Described::of(Api::Operator).operations() {
        for body in examples(&operation) {
            for query in [Vec::new(), query(&operation)] {
                let things = Things::make(&gateway).await;
                let query = query
                    .iter()
                    .map(|(name, value)| format!("{name}={}", things.real(value)))
                    .collect::<Vec<_>>()
                    .join("&");
                let path = things.in_path(operation.path);
                let url = format!("http://{}{path}?{query}", gateway.operator);
                let request = gateway.client.request(operation.method.clone(), url);
                let mut request = request.bearer_auth(OPERATOR_TOKEN);
                if let Some(mut body) = body.clone() {
                    if body.get("based_on").is_some() {
                        let config = gateway.operate(Method::GET, "/operator/config", None).await;
                        body["based_on"] = config.assert_ok()["version"].clone();
                    }
                    request = request.json(&things.in_body(body));
                }
                succeeds(&operation, request).await;
                if query.is_empty() {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn every_described_public_request_succeeds() {
    let serving = Serving::start(1).await;
    let stored = json!({ "model": "svc-pro", "input": "Hello" });
    for operation in Described::of(Api::Public).operations() {
        for body in examples(&operation) {
            let send = |method: Method, path: &str| {
                let url = format!("http://{}{path}", serving.public);
                serving
                    .client
                    .request(method, url)
                    .bearer_auth(&serving.key)
            };
            let response = answer(send(Method::POST, "/v1/responses").json(&stored)).await;
            let id = response.assert_ok()["id"].as_str().unwrap();
            let path = operation
                .path
                .replace("/responses/{id}", &format!("/responses/{id}"));
            let path = path.replace("/models/{id}", "/models/svc-pro");
            let mut request = send(operation.method.clone(), &path);
            if let Some(mut body) = body {
                if body.get("previous_response_id").is_some() {
                    body["previous_response_id"] = id.into();
                }
                request = request.json(&body);
            }
            succeeds(&operation, request).await;
        }
    }
}

#[test]
#[should_panic(expected = "body.surprise is not described: 1")]
fn a_field_too_many_is_found() {
    let body = json!({ "status": "alive", "surprise": 1 }).to_string();
    compare_health(200, &body);
}

#[test]
#[should_panic(expected = "the status is not described")]
fn a_status_that_is_not_described_is_found() {
    compare_health(201, "{}");
}

#[test]
#[should_panic(expected = "the header `Vary` is missing")]
fn a_header_that_is_missing_is_found() {
    compare_described("/metrics", ("text/plain", 200), "");
}

/// A grant to an account, as it was accepted.
fn accepted(query: &str, body: &Value) {
    let url = format!("http://gateway/operator/accounts/acct_1/grants{query}");
    let request = reqwest::Client::new().post(url).json(body);
    compare_each_request(&request.build().unwrap());
}

#[test]
fn a_request_that_is_described_may_be_accepted() {
    accepted("", &json!({ "amount": "1", "reason": null }));
}

#[test]
#[should_panic(expected = "body.amount must be of type")]
fn a_request_of_another_type_is_found() {
    accepted("", &json!({ "amount": 1 }));
}

#[test]
#[should_panic(expected = "body.surprise is not described: 1")]
fn a_field_of_a_request_that_is_not_described_is_found() {
    accepted("", &json!({ "amount": "1", "surprise": 1 }));
}

#[test]
#[should_panic(expected = "the query's `surprise` is not described")]
fn a_query_that_is_not_described_is_found() {
    accepted("?surprise=1", &json!({ "amount": "1" }));
}

fn compare_health(status: u16, body: &str) {
    compare_described("/health/live", ("application/json", status), body);
}

fn compare_described(path: &str, (content_type, status): (&str, u16), body: &str) {
    let headers = [("x-request-id", "req_1"), ("content-type", content_type)];
    let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let response = Response {
        status,
        headers: &headers.into_iter().collect(),
        body,
    };
    compare(&Method::GET, path, &response);
}

/// What the validator finds, in the order of the cases of JSON Schema that the descriptions use.
#[test]
fn the_validator_finds_what_does_not_fit() {
    let document = json!({ "components": { "schemas": {
        "A": { "type": "object", "required": ["kind"], "properties": { "kind": { "const": "a" }, "n": { "type": "integer" } } },
        "B": { "type": "object", "required": ["kind"], "properties": { "kind": { "const": "b" }, "t": { "type": ["string", "null"] } } },
    } } });
    let reference = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let either = json!({ "oneOf": [reference("A"), reference("B")] });
    let both =
        json!({ "allOf": [reference("A"), { "type": "object", "properties": { "more": {} } }] });
    let map =
        json!({ "type": "object", "additionalProperties": { "type": "number", "minimum": 1 } });
    let list = json!({ "type": "array", "items": { "enum": ["x", "y"] }, "maxItems": 2 });
    for (schema, value, wrong) in [
        (&either, json!({ "kind": "a", "n": 1 }), None),
        (&either, json!({ "kind": "b", "t": null }), None),
        (
            &either,
            json!({ "kind": "b", "n": 1 }),
            Some("body.n is not described: 1"),
        ),
        (
            &either,
            json!({ "kind": "b", "t": 1 }),
            Some("body.t must be of type [\"string\",\"null\"]: 1"),
        ),
        (&either, json!({ "t": null }), Some("body.kind is missing")),
        (&both, json!({ "kind": "a", "n": 1, "more": [] }), None),
        (
            &both,
            json!({ "kind": "a", "mere": [] }),
            Some("body.mere is not described: []"),
        ),
        (&map, json!({ "any": 1.5 }), None),
        (
            &map,
            json!({ "any": 0 }),
            Some("body.any must be at least 1: 0"),
        ),
        (&list, json!(["x", "y"]), None),
        (
            &list,
            json!(["x", "z"]),
            Some("body[1] must be one of [\"x\",\"y\"]: \"z\""),
        ),
        (
            &list,
            json!(["x", "x", "x"]),
            Some("body must be at most as long as 2: [\"x\",\"x\",\"x\"]"),
        ),
        (
            &json!({ "typo": 1 }),
            json!(1),
            Some("body has a schema with the keyword `typo`: 1"),
        ),
        (&json!({}), json!({ "any": "thing" }), None),
    ] {
        let found = mismatches(&document, schema, &value);
        let expected: Vec<_> = wrong.into_iter().collect();
        assert_eq!(found, expected, "{value} against {schema}");
    }
}
