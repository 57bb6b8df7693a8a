//! A catalog of hybrids for tests; their choices do not depend on the scorer's weights.

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Answer, Step, TestGateway,
    bodies::hello_with,
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

const CATALOG: &str = r#"
[defaults]
builtin_tools = true
[[models]]
id = "small"
input = "0.10"
output = "0.40"
quality_tier = 1
drops = ["temperature"]
[[models]]
id = "middle"
input = "1.00"
output = "4.00"
quality_tier = 2
[[models]]
id = "large"
input = "10.00"
output = "40.00"
quality_tier = 4
[[models]]
id = "thrifty"
input = "0.01"
output = "0.04"
quality_tier = 1
features = ["streaming"]

[[models]]
id = "low"
targets = ["small", "middle", "large"]
router = "tiered"
tiered = { cuts = [0.9997, 0.9998, 0.9999] }
[[models]]
id = "high"
targets = ["small", "middle", "large"]
router = "tiered"
tiered = { cuts = [0.0, 0.0001, 0.0002] }
[[models]]
id = "mid"
targets = ["small", "middle", "large"]
router = "tiered"
tiered = { cuts = [0.0001, 0.9998, 0.9999] }
[[models]]
id = "cheap"
targets = ["small", "thrifty"]
router = "cost"
[[models]]
id = "vip"
input = "2.00"
output = "8.00"
quality_tier = 3
min_tier = "max"
[[models]]
id = "mixed"
targets = ["vip", "small"]
router = "tiered"
tiered = { cuts = [0.9997, 0.9998, 0.9999] }
[[models]]
id = "plain"
targets = ["thrifty"]
[[models]]
id = "kinds"
targets = ["small", "middle", "large"]
router = "semantic"
[models.semantic]
default = ["small"]
[[models.semantic.routes]]
name = "programs"
domains = ["code"]
models = ["middle"]
[[models.semantic.routes]]
name = "refunds"
exemplars = ["Where is my parcel?", "I want my money back"]
models = ["large"]
[[models]]
id = "turn"
targets = ["small", "large"]
router = "turn"
turn = { lambda = 1.0 }
"#;

/// A request that needs some thought: a greeting would go to the weakest target whatever the settings.
pub fn question(model: &str) -> Value {
    question_with(model, json!({}))
}

pub fn question_with(model: &str, more: Value) -> Value {
    let messages =
        json!([{ "role": "user", "content": "Which of the lakes of Africa is the deepest?" }]);
    let mut body = hello_with(model, json!({ "messages": messages }));
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// A gateway with the catalog above. Each target is sent upstream under its own model name.
pub struct Hybrids {
    pub gateway: TestGateway,
    _catalog: TempDir,
}

impl Hybrids {
    pub async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("catalog.toml");
        std::fs::write(&file, CATALOG).unwrap();
        let deployments = ["small", "middle", "large", "thrifty", "vip"]
            .map(|model| format!("[[deployments]]\nmodel = \"{model}\"\nprovider = \"fake\"\n"));
        let catalog = format!("[catalog]\nfile = \"{}\"\n", file.display());
        let more = catalog + &deployments.concat();
        let gateway = TestGateway::start_with(&more).await;
        Self {
            gateway,
            _catalog: folder,
        }
    }

    /// Plays `steps` for these models; the others respond with their name as JSON.
    pub fn failing(&self, models: &'static [&'static str], steps: Vec<Step>) {
        self.gateway.upstream.play_for_each(move |received| {
            let model = received.body["model"].as_str().unwrap();
            if models.contains(&model) {
                return steps.clone();
            }
            vec![Step::Send(if received.body["stream"] == true {
                let said = chunk(json!({ "role": "assistant", "content": model }), None);
                let end = chunk(json!({}), Some("stop"));
                let events = events(&[said, end, usage_chunk(100, 1_000)]);
                [stream_head(), events.into_bytes()].concat()
            } else {
                let mut answer = completion(&json!(model).to_string());
                answer["usage"] = json!({
                    "prompt_tokens": 100, "completion_tokens": 1_000, "total_tokens": 1_100,
                });
                response(200, "application/json", &answer.to_string())
            })]
        });
    }

    pub fn answering(&self) {
        self.failing(&[], Vec::new());
    }

    /// The models called since the start, in order.
    pub fn models_called(&self) -> Vec<String> {
        let received = self.gateway.upstream.received();
        let models = received.iter().map(|one| one.body["model"].as_str());
        models.map(|model| model.unwrap().to_owned()).collect()
    }

    pub async fn get(&self, path: &str) -> Value {
        let answer = self.gateway.operate(Method::GET, path, None).await;
        answer.assert_ok().clone()
    }

    pub async fn details(&self, request_id: &str) -> Value {
        self.get(&format!("/operator/requests/{request_id}")).await
    }

    pub async fn details_of(&self, answer: &Answer) -> Value {
        self.details(answer.headers["x-request-id"].to_str().unwrap())
            .await
    }

    pub async fn explain(&self, body: &Value) -> Answer {
        let path = format!(
            "/operator/routing/explain?account={}",
            self.gateway.account_id
        );
        let body = Some(body.clone());
        self.gateway.operate(Method::POST, &path, body).await
    }

    pub async fn set(&self, model: &str, enabled: bool) {
        let path = format!("/operator/models/{model}");
        let body = Some(json!({ "enabled": enabled }));
        self.gateway
            .operate(Method::PUT, &path, body)
            .await
            .assert_ok();
    }
}

pub fn routed(answer: &Answer) -> &str {
    answer.assert_ok();
    answer.headers["x-routed-model"].to_str().unwrap()
}

pub fn status(status: u16) -> Vec<Step> {
    let body = json!({ "error": { "message": "no" } }).to_string();
    vec![Step::Send(response(status, "application/json", &body))]
}
