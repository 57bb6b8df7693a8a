//! Hybrids (§2.8): who is chosen, who is asked when that one fails, and who pays what for it.
//!
//! The models here are of the tests' own: what they would choose does not depend on any weights.

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Answer, Gate, Step, TestGateway,
    bodies::{hello_with, tool},
    gateway::Plan,
    responses::{calling, tool_call},
    turns::CONVERT,
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

const CATALOG: &str = r#"
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

/// Something to think about: a greeting is for the weakest, whatever the settings.
fn question(model: &str) -> Value {
    question_with(model, json!({}))
}

fn question_with(model: &str, more: Value) -> Value {
    let asked =
        json!([{ "role": "user", "content": "Which of the lakes of Africa is the deepest?" }]);
    let mut body = hello_with(model, json!({ "messages": asked }));
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// A gateway with the catalog above; what is asked of a model comes by its name.
struct Hybrids {
    gateway: TestGateway,
    _catalog: TempDir,
}

impl Hybrids {
    async fn start() -> Self {
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

    /// These models do this; the others answer with their name, as JSON.
    fn failing(&self, models: &'static [&'static str], steps: Vec<Step>) {
        self.gateway.upstream.play_for_each(move |received| {
            let model = received.body["model"].as_str().unwrap();
            if models.contains(&model) {
                return steps.clone();
            }
            vec![Step::Send(if received.body["stream"] == true {
                let said = chunk(json!({ "role": "assistant", "content": model }), None);
                let end = chunk(json!({}), Some("stop"));
                let events = events(&[said, end, usage_chunk(1_000, 1_000)]);
                [stream_head(), events.into_bytes()].concat()
            } else {
                let mut answer = completion(&json!(model).to_string());
                answer["usage"] = json!({
                    "prompt_tokens": 1_000, "completion_tokens": 1_000, "total_tokens": 2_000,
                });
                response(200, "application/json", &answer.to_string())
            })]
        });
    }

    fn answering(&self) {
        self.failing(&[], Vec::new());
    }

    /// Which models were asked since the start.
    fn asked(&self) -> Vec<String> {
        let received = self.gateway.upstream.received();
        let models = received.iter().map(|one| one.body["model"].as_str());
        models.map(|model| model.unwrap().to_owned()).collect()
    }

    async fn look(&self, path: &str) -> Value {
        let answer = self.gateway.operate(Method::GET, path, None).await;
        answer.assert_ok().clone()
    }

    async fn story(&self, request_id: &str) -> Value {
        self.look(&format!("/operator/requests/{request_id}")).await
    }

    async fn story_of(&self, answer: &Answer) -> Value {
        self.story(answer.headers["x-request-id"].to_str().unwrap())
            .await
    }

    async fn explain(&self, body: &Value) -> Answer {
        let path = format!(
            "/operator/routing/explain?account={}",
            self.gateway.account_id
        );
        let body = Some(body.clone());
        self.gateway.operate(Method::POST, &path, body).await
    }

    async fn set(&self, model: &str, enabled: bool) {
        let path = format!("/operator/models/{model}");
        let body = Some(json!({ "enabled": enabled }));
        self.gateway
            .operate(Method::PUT, &path, body)
            .await
            .assert_ok();
    }
}

fn routed(answer: &Answer) -> &str {
    answer.assert_ok();
    answer.headers["x-routed-model"].to_str().unwrap()
}

fn status(status: u16) -> Vec<Step> {
    let body = json!({ "error": { "message": "no" } }).to_string();
    vec![Step::Send(response(status, "application/json", &body))]
}

#[tokio::test]
async fn who_answers_is_told_charged_and_kept() {
    let hybrids = Hybrids::start().await;
    hybrids.answering();
    for (hybrid, target, reason, cost) in [
        ("low", "small", "TIER_SCORE", "0.000500"),
        ("high", "large", "TIER_SCORE", "0.050000"),
        ("cheap", "thrifty", "COST_OK", "0.000050"),
        ("plain", "thrifty", "COST_ONLY_FIT", "0.000050"),
    ] {
        let answer = hybrids.gateway.chat(&question(hybrid)).await;
        assert_eq!(routed(&answer), target);
        assert_eq!(answer.body["model"], hybrid);
        let story = hybrids.story_of(&answer).await;
        assert_eq!(story["model"], hybrid);
        assert_eq!(story["routed_model"], target);
        assert_eq!(story["settlement"]["charge"], cost);
        assert_eq!(story["decision"]["chosen"], target);
        assert_eq!(story["decision"]["reason"], reason);
        let stream = hybrids.gateway.open_stream(&question(hybrid)).await;
        assert_eq!(stream.headers()["x-routed-model"], target);
        stream.text().await.unwrap();
    }
    let plain = hybrids.gateway.chat(&question("small")).await;
    assert_eq!(hybrids.story_of(&plain).await["decision"], json!(null));
    let routing = hybrids.look("/operator/routing").await;
    let rows = routing["hybrids"].as_array().unwrap();
    let row = rows.iter().find(|row| row["model"] == "low").unwrap();
    assert_eq!(row["answered"], 2);
    assert_ne!(row["estimated_saving"], "0.000000");
    let saved = row["estimated_saving"].clone();
    let chosen = json!([{ "routed_model": "small", "reason": "TIER_SCORE", "answered": 2,
        "estimated_saving": saved }]);
    assert_eq!(row["chosen"], chosen);
    let explained = hybrids.explain(&question("low")).await;
    for tier in 0..4 {
        let expected = explained.assert_ok()["quality"][tier].as_f64().unwrap();
        let shown = row["quality"]["p50"][tier].as_f64().unwrap();
        assert!((expected - shown).abs() <= 0.005, "{row}");
    }
    let url = format!("http://{}/metrics", hybrids.gateway.operator);
    let request = hybrids.gateway.client.get(url);
    let request = request.bearer_auth(crate::support::gateway::OPERATOR_TOKEN);
    let metrics = request.send().await.unwrap().text().await.unwrap();
    let counted = r#"tollgate_routed_total{hybrid="low",model="small",reason="TIER_SCORE"} 2"#;
    assert!(metrics.contains(counted), "{metrics}");
    assert!(
        metrics.contains("tollgate_route_seconds_count 8"),
        "{metrics}"
    );
}

/// Whoever may yet answer must be paid for.
#[tokio::test]
async fn what_is_held_is_for_the_dearest_that_may_answer() {
    let hybrids = Hybrids::start().await;
    let gate = Gate::default();
    let body = completion("Hi").to_string();
    hybrids.gateway.upstream.play(vec![
        Step::Until(gate.clone()),
        Step::Send(response(200, "application/json", &body)),
    ]);
    let asked = question_with("low", json!({ "max_tokens": 1_000 }));
    let (answer, ()) = tokio::join!(hybrids.gateway.chat(&asked), async {
        crate::support::gateway::until("it is asked", || hybrids.gateway.upstream.calls() == 1)
            .await;
        let path = format!("/operator/accounts/{}", hybrids.gateway.account_id);
        let held = hybrids.look(&path).await["held"].clone();
        let held: f64 = held.as_str().unwrap().parse().unwrap();
        assert!(
            (0.04..0.05).contains(&held),
            "1,000 tokens of `large`: {held}"
        );
        gate.open();
    });
    assert_eq!(routed(&answer), "small");
    // A credit that pays for the chosen one alone is not enough.
    hybrids.answering();
    let body = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
    let made = hybrids
        .gateway
        .operate(Method::POST, "/operator/accounts", Some(body))
        .await;
    let id = made.assert_ok()["id"].as_str().unwrap();
    let path = format!("/operator/accounts/{id}/grants");
    let grant = Some(json!({ "amount": "0.01" }));
    let given = hybrids.gateway.operate(Method::POST, &path, grant).await;
    given.assert_ok();
    let (_, key) = hybrids.gateway.new_key(id).await;
    assert_eq!(hybrids.gateway.chat_as(&key, &asked).await.status, 402);
    let small = question_with("small", json!({ "max_tokens": 1_000 }));
    hybrids.gateway.chat_as(&key, &small).await.assert_ok();
}

#[tokio::test]
async fn a_failure_before_the_first_byte_goes_up_a_tier() {
    let empty = {
        let mut answer = completion("");
        answer["choices"][0]["message"]["content"] = json!("");
        response(200, "application/json", &answer.to_string())
    };
    let silent = events(&[chunk(json!({}), Some("stop")), usage_chunk(9, 1)]);
    let silent = [stream_head(), silent.into_bytes()].concat();
    let cases = [
        (false, status(500), "TIER_ESCALATED_5XX"),
        (true, status(503), "TIER_ESCALATED_5XX"),
        (false, vec![Step::Reset], "TIER_ESCALATED_5XX"),
        (
            false,
            vec![Step::Pause(std::time::Duration::from_secs(4))],
            "TIER_ESCALATED_TIMEOUT",
        ),
        (false, vec![Step::Send(empty)], "TIER_ESCALATED_EMPTY"),
        (true, vec![Step::Send(silent)], "TIER_ESCALATED_EMPTY"),
    ];
    // With the gateway's own tools on offer, and without.
    let executions = ["execute", "passthrough"];
    let cases = cases
        .iter()
        .flat_map(|case| executions.map(|execution| (case.clone(), execution)));
    for ((streamed, steps, reason), execution) in cases {
        let hybrids = Hybrids::start().await;
        hybrids.failing(&["small"], steps);
        let mut body = question_with("low", json!({ "tool_execution": execution }));
        body["stream"] = streamed.into();
        let request = hybrids
            .gateway
            .request(Method::POST, "/v1/chat/completions");
        let sent = request.header("x-request-id", "up").json(&body).send();
        let answer = sent.await.unwrap();
        assert_eq!(answer.status(), 200, "{reason}");
        assert_eq!(answer.headers()["x-routed-model"], "middle");
        assert!(answer.text().await.unwrap().contains("middle"));
        assert_eq!(hybrids.asked(), ["small", "middle"]);
        let story = hybrids.story("up").await;
        assert_eq!(story["routed_model"], "middle");
        assert_eq!(story["settlement"]["charge"], "0.005000");
        assert_eq!(story["failed_attempts"].as_array().unwrap().len(), 1);
        let decision = &story["decision"];
        assert_eq!(decision["chosen"], "middle");
        assert_eq!(decision["reason"], reason);
        let up = json!([{ "from": "small", "to": "middle", "reason": reason }]);
        assert_eq!(decision["escalations"], up);
    }
}

/// Nobody is routed to a model that could not be asked for by name: not at once, and not when
/// another one fails.
#[tokio::test]
async fn a_plan_is_routed_to_its_own_models_alone() {
    let hybrids = Hybrids::start().await;
    let (free_id, free) = hybrids.gateway.account(Plan::FREE).await;
    let (_, max) = hybrids.gateway.account(Plan::MAX).await;
    hybrids.failing(&["small"], status(500));
    let answer = hybrids.gateway.chat_as(&max, &question("mixed")).await;
    assert_eq!(routed(&answer), "vip");
    let before = hybrids.asked().len();
    let answer = hybrids.gateway.chat_as(&free, &question("mixed")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(hybrids.asked()[before..], ["small"]);
    let story = hybrids.story_of(&answer).await;
    let candidates = story["decision"]["candidates"].as_array().unwrap();
    let vip = candidates.iter().find(|one| one["model"] == "vip").unwrap();
    assert_eq!(vip["rejected"], "not_entitled");
    // Where only others' models are left, it says which plan has them.
    hybrids.set("small", false).await;
    let refused = hybrids.gateway.chat_as(&free, &question("mixed")).await;
    refused.assert_error(
        403,
        "tier_upgrade_required",
        Some("forbidden"),
        Some("model"),
    );
    assert_eq!(refused.error()["required_tier"], "max");
    // A dry run is for an account, or for whoever may use everything.
    let path = format!("/operator/routing/explain?account={free_id}");
    let body = Some(question("mixed"));
    let explained = hybrids
        .gateway
        .operate(Method::POST, &path, body.clone())
        .await;
    assert_eq!(explained.status, 403);
    let path = format!("/operator/routing/explain?account={free_id}");
    let above = Some(question("svc-hybrid-tiered"));
    let explained = hybrids.gateway.operate(Method::POST, &path, above).await;
    assert_eq!(
        explained.status, 403,
        "the hybrid itself is not of this plan"
    );
    let path = "/operator/routing/explain";
    let explained = hybrids
        .gateway
        .operate(Method::POST, path, body.clone())
        .await;
    assert_eq!(explained.assert_ok()["chosen"], "vip");
    let path = "/operator/routing/explain?account=acct_nobody";
    let explained = hybrids.gateway.operate(Method::POST, path, body).await;
    assert_eq!(explained.status, 404);
}

/// Asked for JSON, a target that says something else has not answered.
#[tokio::test]
async fn what_is_no_json_goes_up_a_tier() {
    let said = |text: &str| {
        let answer = completion(text).to_string();
        vec![Step::Send(response(200, "application/json", &answer))]
    };
    let json = json!({ "response_format": { "type": "json_object" },
        "messages": [{ "role": "user", "content": "Give me JSON" }] });
    for (text, wants_json, asked) in [
        ("Here you are", true, &["small", "middle"][..]),
        ("```json\n{}\n```", true, &["small", "middle"]),
        (r#"{"a": [1, 2]}"#, true, &["small"]),
        ("Here you are", false, &["small"]),
    ] {
        let hybrids = Hybrids::start().await;
        hybrids.failing(&["small"], said(text));
        let more = if wants_json { json.clone() } else { json!({}) };
        let answer = hybrids.gateway.chat(&question_with("low", more)).await;
        assert_eq!(routed(&answer), *asked.last().unwrap());
        assert_eq!(hybrids.asked(), asked, "{text}");
        if asked.len() > 1 {
            let decision = &hybrids.story_of(&answer).await["decision"];
            assert_eq!(decision["reason"], "TIER_ESCALATED_NOT_JSON");
        }
    }
    // Somebody better is asked once: what that one says is handed on.
    let hybrids = Hybrids::start().await;
    hybrids.failing(&["small", "middle", "large"], said("no"));
    let body = question_with("low", json);
    let answer = hybrids.gateway.chat(&body).await;
    assert_eq!(routed(&answer), "middle");
    assert_eq!(hybrids.asked(), ["small", "middle"]);
    // If nobody better answers, a poor answer is better than none, and is charged as what it is.
    let hybrids = Hybrids::start().await;
    hybrids.gateway.upstream.play_for_each(move |received| {
        if received.body["model"] == "small" {
            said("no")
        } else {
            status(500)
        }
    });
    let answer = hybrids.gateway.chat(&body).await;
    assert_eq!(routed(&answer), "small");
    assert_eq!(hybrids.asked(), ["small", "middle", "large"]);
    assert_eq!(answer.body["choices"][0]["message"]["content"], "no");
    let story = hybrids.story_of(&answer).await;
    assert_eq!(story["routed_model"], "small");
    assert_eq!(story["decision"]["chosen"], "small");
    assert_eq!(story["settlement"]["prices"]["prompt"], "0.0000001");
}

/// Of a poor answer and none, the poor one; and never a worse one than that.
#[tokio::test]
async fn a_poor_answer_is_kept_while_somebody_better_is_asked() {
    let end = chunk(json!({}), Some("stop"));
    let silent = events(&[end, usage_chunk(1_000, 1)]);
    let silent = [stream_head(), silent.into_bytes()].concat();
    let empty = {
        let mut answer = completion("");
        answer["usage"] =
            json!({ "prompt_tokens": 1_000, "completion_tokens": 1, "total_tokens": 1_001 });
        response(200, "application/json", &answer.to_string())
    };
    for (stream, execution) in [
        (false, "execute"),
        (false, "passthrough"),
        (true, "execute"),
        (true, "passthrough"),
    ] {
        let hybrids = Hybrids::start().await;
        let poor = if stream {
            silent.clone()
        } else {
            empty.clone()
        };
        hybrids.gateway.upstream.play_for_each(move |received| {
            match received.body["model"].as_str().unwrap() {
                "middle" => vec![Step::Send(poor.clone())],
                "large" => status(500),
                other => panic!("{other} is no better"),
            }
        });
        let mut body = question_with("mid", json!({ "tool_execution": execution }));
        body["stream"] = stream.into();
        let request = hybrids
            .gateway
            .request(Method::POST, "/v1/chat/completions");
        let sent = request.header("x-request-id", "poor").json(&body).send();
        let answer = sent.await.unwrap();
        assert_eq!(answer.status(), 200, "{stream} {execution}");
        assert_eq!(answer.headers()["x-routed-model"], "middle");
        answer.text().await.unwrap();
        assert_eq!(hybrids.asked(), ["middle", "large"]);
        let story = hybrids.story("poor").await;
        assert_eq!(story["routed_model"], "middle");
        assert_eq!(story["decision"]["chosen"], "middle");
        assert_eq!(story["settlement"]["charge"], "0.001004");
    }
}

/// Thanks and the like are judged by what they are about.
#[tokio::test]
async fn a_courtesy_goes_on_with_what_was_asked() {
    let hybrids = Hybrids::start().await;
    let hard = json!({ "role": "user", "content": "Prove that there are infinitely many primes." });
    let ask = |messages: Value| question_with("low", json!({ "messages": messages }));
    let alone = hybrids.explain(&ask(json!([hard]))).await;
    let shall = json!({ "role": "assistant", "content": "Shall I use Euclid's way?" });
    let please = json!({ "role": "user", "content": "Ok, please!" });
    let later = hybrids.explain(&ask(json!([hard, shall, please]))).await;
    assert_eq!(later.assert_ok()["quality"], alone.assert_ok()["quality"]);
    assert_eq!(later.body["contributions"], alone.body["contributions"]);
    let hello = json!({ "role": "user", "content": "Hello!" });
    let hello = hybrids.explain(&ask(json!([hello]))).await;
    assert_eq!(hello.assert_ok()["quality"], json!([1.0, 1.0, 1.0, 1.0]));
}

/// A tool-using request that began with a failure: all its steps are the next tier's.
#[tokio::test]
async fn tools_are_run_for_who_answers_after_a_failure() {
    for responses in [false, true] {
        let hybrids = Hybrids::start().await;
        hybrids.gateway.upstream.play_for_each(|received| {
            let body = &received.body;
            let messages = body["messages"].as_array().unwrap();
            let counted = |mut answer: Value| {
                answer["usage"] = json!({ "prompt_tokens": 1_000, "completion_tokens": 1_000,
                    "total_tokens": 2_000 });
                vec![Step::Send(response(
                    200,
                    "application/json",
                    &answer.to_string(),
                ))]
            };
            match messages.last().unwrap()["role"].as_str().unwrap() {
                _ if body["model"] != "middle" => status(500),
                "tool" => counted(completion("It is a billion.")),
                _ => counted(calling(&[tool_call(CONVERT.0, CONVERT.1, CONVERT.2)])),
            }
        });
        let answer = if responses {
            let body = json!({ "model": "low", "input": "Hello" });
            hybrids.gateway.respond(&body).await
        } else {
            hybrids.gateway.chat(&question("low")).await
        };
        assert_eq!(routed(&answer), "middle");
        assert_eq!(hybrids.asked(), ["small", "middle", "middle"]);
        let story = hybrids.story_of(&answer).await;
        assert_eq!(story["model"], "low");
        assert_eq!(story["routed_model"], "middle");
        // Two steps of 1,000 and 1,000 tokens at 1.00 and 4.00 a million.
        assert_eq!(story["settlement"]["charge"], "0.010000");
        assert_eq!(story["steps"].as_array().unwrap().len(), 3);
    }
}

/// What a model has begun with tools is not gone on with by another.
#[tokio::test]
async fn after_a_first_step_the_target_stays() {
    let hybrids = Hybrids::start().await;
    hybrids.gateway.upstream.play_for_each(|received| {
        let messages = received.body["messages"].as_array().unwrap();
        if messages.last().unwrap()["role"] == "tool" {
            return status(500);
        }
        let answer = calling(&[tool_call(CONVERT.0, CONVERT.1, CONVERT.2)]);
        vec![Step::Send(response(
            200,
            "application/json",
            &answer.to_string(),
        ))]
    });
    let answer = hybrids.gateway.chat(&question("low")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(hybrids.asked(), ["small", "small"]);
    let story = hybrids.story_of(&answer).await;
    assert_eq!(story["settlement"]["charge"], "0.000000");
}

/// Who goes to rest while another is being asked is passed over.
#[tokio::test]
async fn nobody_is_asked_who_has_failed_meanwhile() {
    let hybrids = Hybrids::start().await;
    let gate = Gate::default();
    let opened = gate.clone();
    hybrids.gateway.upstream.play_for_each(move |received| {
        match received.body["model"].as_str().unwrap() {
            "small" => [vec![Step::Until(opened.clone())], status(500)].concat(),
            "middle" => {
                let rest = b"HTTP/1.1 503 X\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
                vec![Step::Send(rest.to_vec())]
            }
            other => {
                let answer = completion(other).to_string();
                vec![Step::Send(response(200, "application/json", &answer))]
            }
        }
    });
    let asked = question("low");
    let (answer, ()) = tokio::join!(hybrids.gateway.chat(&asked), async {
        crate::support::gateway::until("it is asked", || hybrids.gateway.upstream.calls() == 1)
            .await;
        let refused = hybrids.gateway.chat(&question("middle")).await;
        assert_eq!(refused.status, 502);
        gate.open();
    });
    assert_eq!(routed(&answer), "large");
    assert_eq!(hybrids.asked(), ["small", "middle", "large"]);
}

/// What one target does not take, another may.
#[tokio::test]
async fn each_target_gets_the_settings_it_takes() {
    let hybrids = Hybrids::start().await;
    hybrids.failing(&["small"], status(500));
    let body = question_with("low", json!({ "temperature": 0.5, "seed": 7 }));
    assert_eq!(routed(&hybrids.gateway.chat(&body).await), "middle");
    let received = hybrids.gateway.upstream.received();
    let sent = |at: usize, key: &str| received[at].body[key].clone();
    assert_eq!(
        [sent(0, "temperature"), sent(0, "seed")],
        [json!(null), json!(7)]
    );
    assert_eq!(
        [sent(1, "temperature"), sent(1, "seed")],
        [json!(0.5), json!(7)]
    );
}

#[tokio::test]
async fn when_all_fail_each_was_asked_and_nothing_is_owed() {
    let hybrids = Hybrids::start().await;
    for (hybrid, order) in [
        ("low", &["small", "middle", "large"][..]),
        ("high", &["large", "middle"]),
    ] {
        let before = hybrids.asked().len();
        hybrids.failing(&["small", "middle", "large"], status(500));
        let answer = hybrids.gateway.chat(&question(hybrid)).await;
        assert_eq!(answer.status, 502);
        assert_eq!(hybrids.asked()[before..], *order);
        let story = hybrids.story_of(&answer).await;
        assert_eq!(story["settlement"]["charge"], "0.000000");
    }
    // What is wrong with the request is wrong for all.
    let before = hybrids.asked().len();
    hybrids.failing(&["small"], status(400));
    let answer = hybrids.gateway.chat(&question("low")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(hybrids.asked()[before..], ["small"]);
}

#[tokio::test]
async fn who_is_off_or_left_alone_is_passed_over() {
    let hybrids = Hybrids::start().await;
    hybrids.answering();
    let rejected = async |model: &str| {
        let answer = hybrids.explain(&question("low")).await;
        let decision = answer.assert_ok();
        let mut candidates = decision["candidates"].as_array().unwrap().iter();
        let found = candidates.find(|one| one["model"] == model).unwrap();
        found["rejected"].clone()
    };
    assert_eq!(rejected("small").await, json!(null));
    hybrids.set("small", false).await;
    assert_eq!(rejected("small").await, "disabled");
    assert_eq!(
        routed(&hybrids.gateway.chat(&question("low")).await),
        "middle"
    );
    hybrids.set("small", true).await;
    let rest = b"HTTP/1.1 503 X\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
    hybrids.failing(&["small"], vec![Step::Send(rest.to_vec())]);
    assert_eq!(hybrids.gateway.chat(&question("small")).await.status, 502);
    assert_eq!(rejected("small").await, "unhealthy");
    let before = hybrids.asked().len();
    assert_eq!(
        routed(&hybrids.gateway.chat(&question("low")).await),
        "middle"
    );
    assert_eq!(
        hybrids.asked()[before..],
        ["middle"],
        "it is not even asked"
    );
    // When all are left alone, somebody is asked all the same, and nobody after that.
    let rest = vec![Step::Send(rest.to_vec())];
    hybrids.failing(&["small", "middle", "large"], rest);
    for model in ["middle", "large"] {
        assert_eq!(hybrids.gateway.chat(&question(model)).await.status, 502);
    }
    let before = hybrids.asked().len();
    let answer = hybrids.gateway.chat(&question("low")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(hybrids.asked()[before..], ["small"]);
    let story = hybrids.story_of(&answer).await;
    assert_eq!(story["decision"]["reason"], "FALLBACK_HEALTH");
}

#[tokio::test]
async fn what_no_target_can_do_is_named() {
    let hybrids = Hybrids::start().await;
    hybrids.answering();
    let tools = json!({ "tools": [tool("look")] });
    let schema = json!({ "response_format": { "type": "json_schema", "json_schema": {
        "name": "x", "schema": { "type": "object" },
    } }, "tool_execution": "passthrough" });
    for (more, param, words) in [
        (tools, "tools", "takes these tools"),
        (schema, "response_format", "keeps to a JSON schema"),
    ] {
        let cheap = hybrids
            .gateway
            .chat(&question_with("cheap", more.clone()))
            .await;
        assert_eq!(routed(&cheap), "small", "the cheaper one cannot");
        let refused = hybrids.gateway.chat(&question_with("plain", more)).await;
        refused.assert_error(400, "invalid_request_error", None, Some(param));
        let message = refused.error()["message"].as_str().unwrap();
        assert!(
            message.contains("`plain`") && message.contains(words),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_conversation_stays_where_it_is_while_tools_are_called() {
    let hybrids = Hybrids::start().await;
    hybrids.answering();
    let turn = |more: &[Value]| {
        let mut messages =
            vec![json!({ "role": "user", "content": "Look up the weather in Rome" })];
        messages.extend_from_slice(more);
        json!({ "model": "turn", "messages": messages, "tools": [tool("look")] })
    };
    let reason = async |body: &Value| {
        let answer = hybrids.gateway.chat(body).await;
        let story = hybrids.story_of(&answer).await;
        let reason = story["decision"]["reason"].as_str().unwrap().to_owned();
        (routed(&answer).to_owned(), reason)
    };
    assert_eq!(
        reason(&turn(&[])).await,
        ("small".into(), "TURN_FIRST".into())
    );
    let called = [
        json!({ "role": "assistant", "tool_calls": [
            { "id": "c", "type": "function", "function": { "name": "look", "arguments": "{}" } },
        ] }),
        json!({ "role": "tool", "tool_call_id": "c", "content": "Sunny" }),
    ];
    let locked = ("small".to_owned(), "TURN_LOCK_TOOL".to_owned());
    assert_eq!(reason(&turn(&called)).await, locked);
    let go_on = [
        json!({ "role": "assistant", "content": "Sunny." }),
        json!({ "role": "user", "content": "And then?" }),
    ];
    let body = turn(&go_on);
    assert_eq!(
        hybrids.explain(&body).await.assert_ok()["reason"],
        "TURN_CONTINUATION"
    );
    let went_on = ("small".to_owned(), "TURN_CONTINUATION".to_owned());
    assert_eq!(reason(&body).await, went_on);
    // Who is off answers nobody, locked or not.
    hybrids.set("small", false).await;
    assert_eq!(reason(&turn(&called)).await.0, "large");
    // Another account's conversation is another one.
    let (_, other) = hybrids.gateway.account(Plan::FLEX).await;
    hybrids.set("small", true).await;
    let answer = hybrids.gateway.chat_as(&other, &turn(&called)).await;
    let story = hybrids.story_of(&answer).await;
    assert_eq!(story["decision"]["reason"], "TURN_FIRST");
}

#[tokio::test]
async fn what_a_request_is_about_is_told_by_examples_and_by_domain() {
    let hybrids = Hybrids::start().await;
    hybrids.answering();
    let code = "Write a Python function that sorts a list of integers without using sorted().";
    for (prompt, target, reason, route) in [
        (
            "i want my money BACK!",
            "large",
            "SEM_EXEMPLAR",
            json!("refunds"),
        ),
        (code, "middle", "SEM_DOMAIN", json!("programs")),
        ("Hello", "small", "SEM_DEFAULT", json!(null)),
    ] {
        let messages = json!([{ "role": "user", "content": prompt }]);
        let body = question_with("kinds", json!({ "messages": messages }));
        let answer = hybrids.gateway.chat(&body).await;
        assert_eq!(routed(&answer), target, "{prompt}");
        let decision = &hybrids.story_of(&answer).await["decision"];
        assert_eq!(decision["reason"], reason);
        assert_eq!(decision["route"], route);
    }
}

/// What is explained is what is then done, and explaining does nothing.
#[tokio::test]
async fn an_explanation_is_what_is_then_chosen() {
    let hybrids = Hybrids::start().await;
    hybrids.gateway.upstream.answer_json(200, &completion("Hi"));
    let long = "Prove that the sum of 17 and 25 is 42, then 99 * 12345. ".repeat(40);
    for prompt in [
        "Which lake is deepest?",
        "fn main() { let x = (1 + 2); }",
        &long,
    ] {
        for hybrid in ["semantic", "cost", "tiered", "turn"] {
            let body = json!({
                "model": format!("svc-hybrid-{hybrid}"),
                "messages": [{ "role": "user", "content": prompt }],
            });
            let before = hybrids.gateway.upstream.calls();
            let mut explained = hybrids.explain(&body).await.assert_ok().clone();
            assert_eq!(hybrids.gateway.upstream.calls(), before);
            let answer = hybrids.gateway.chat(&body).await;
            assert_eq!(explained["chosen"], routed(&answer));
            let contributions = explained.as_object_mut().unwrap();
            let contributions = contributions.remove("contributions").unwrap();
            assert_eq!(contributions.as_array().unwrap().len(), 3);
            let mut decision = hybrids.story_of(&answer).await["decision"].take();
            assert_eq!(decision["router"], hybrid);
            for one in [&mut explained, &mut decision] {
                assert!(one["route_us"].take().is_u64());
            }
            assert_eq!(explained, decision);
        }
    }
    let refused = hybrids.explain(&question("small")).await;
    refused.assert_error(400, "invalid_request_error", None, Some("model"));
    let refused = hybrids.explain(&question("nobody")).await;
    assert_eq!(refused.status, 404);
}
