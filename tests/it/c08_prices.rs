//! Provider price structures: cache writes, fees, thresholds; and the operator's cost. Each bill is recomputed here
//! from the provider's counts and the price lists as they are written.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Step, TestGateway,
    bodies::hello_with,
    gateway::OPERATOR_TOKEN,
    stores,
    turns::{CONVERT, Turn},
    upstream::{Received, chunk, completion, events, response, stream_head},
};

/// Two models, whose thresholds are small enough for the requests of a test.
const CATALOG: &str = r#"
[[models]]
id = "writes"
input = "3.00"
output = "15.00"
cached_input = "0.30"
cache_write = "3.75"
cache_write_1h = "6.00"
request = "0.00001"
above = [{ prompt_tokens = 300, input = "6.00", output = "22.50", cached_input = "0.60", cache_write = "7.50" }]
features = ["streaming", "prompt_caching"]
builtin_tools = false
[[models]]
id = "steps"
input = "0.000007"
output = "0.11"
above = [{ prompt_tokens = 200, input = "0.20" }, { prompt_tokens = 100, output = "0.000001" }]
features = ["streaming", "tools"]
builtin_tools = true
"#;

/// The operator's cost of the first model; the second model's cost is unknown.
const DEPLOYMENTS: &str = r#"
[[deployments]]
model = "writes"
provider = "fake"
upstream_model = "vendor-model-9"
cost = { input = "2.00", output = "10.00", cached_input = "0.20", cache_write = "2.50", above = [{ prompt_tokens = 400, output = "90.00" }] }
"#;

struct Priced {
    gateway: TestGateway,
    _catalog: TempDir,
}

impl Priced {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("catalog.toml");
        std::fs::write(&file, CATALOG).unwrap();
        let more = format!(
            "{DEPLOYMENTS}\n[catalog]\nfile = {:?}\nextends = true",
            file.display()
        );
        Self {
            gateway: TestGateway::start_with(&more).await,
            _catalog: folder,
        }
    }
}

/// Token counts of a provider.
#[derive(Clone, Copy, Debug)]
struct Counts {
    prompt: i128,
    cached: i128,
    written: i128,
    hour: i128,
    output: i128,
}

impl Counts {
    /// Deterministic counts for each number, often near a threshold.
    fn of(number: u64) -> Self {
        let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66;
        let mut below = |bound: i128| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            i128::from(state >> 33) % bound
        };
        let near = [99, 100, 101, 199, 200, 201, 299, 300, 301, 399, 400, 401];
        let prompt = match below(3) {
            0 => near[usize::try_from(below(12)).unwrap()],
            _ => 1 + below(500),
        };
        let cached = below(prompt + 1);
        let written = below(prompt - cached + 1);
        Self {
            prompt,
            cached,
            written,
            hour: below(written + 1),
            output: below(1_001),
        }
    }

    fn json(self) -> Value {
        let number = |count: i128| u32::try_from(count).unwrap();
        json!({
            "prompt_tokens": number(self.prompt),
            "completion_tokens": number(self.output),
            "prompt_tokens_details": {
                "cached_tokens": number(self.cached),
                "cache_write_tokens": number(self.written),
                "cache_creation_token_details": { "ephemeral_1h_input_tokens": number(self.hour) },
            },
        })
    }
}

/// Converts dollars per million tokens to pico-dollars per token.
fn picos(dollars: &str) -> i128 {
    let (whole, decimals) = dollars.split_once('.').unwrap_or((dollars, ""));
    format!("{whole}{decimals:0<6}").parse().unwrap()
}

/// A bill at these prices: input, cached, cache write, one-hour cache write, output, and a fee in pico-dollars.
fn bill(counts: Counts, rates: [&str; 5], fee: i128) -> i64 {
    let [input, cached, written, hour, output] = rates.map(picos);
    let exact = (counts.prompt - counts.cached - counts.written) * input
        + counts.cached * cached
        + (counts.written - counts.hour) * written
        + counts.hour * hour
        + counts.output * output
        + fee;
    i64::try_from((exact + 999) / 1_000).unwrap()
}

/// The customer's charge in nano-dollars, by the catalog as a person reads it.
fn charged(model: &str, counts: Counts) -> i64 {
    match (model, counts.prompt) {
        // The catalog names no price of one-hour writes above the threshold: the base price applies.
        ("writes", 301..) => bill(
            counts,
            ["6.00", "0.60", "7.50", "6.00", "22.50"],
            10_000_000,
        ),
        ("writes", _) => bill(
            counts,
            ["3.00", "0.30", "3.75", "6.00", "15.00"],
            10_000_000,
        ),
        // Cached input has no price of its own, so it costs as much as input.
        ("steps", 201..) => bill(counts, ["0.20", "0.20", "0.20", "0.20", "0.11"], 0),
        ("steps", 101..) => {
            let input = "0.000007";
            bill(counts, [input, input, input, input, "0.000001"], 0)
        }
        _ => {
            let input = "0.000007";
            bill(counts, [input, input, input, input, "0.11"], 0)
        }
    }
}

/// The operator's cost of `writes`.
fn paid(counts: Counts) -> i64 {
    let output = if counts.prompt > 400 {
        "90.00"
    } else {
        "10.00"
    };
    bill(counts, ["2.00", "0.20", "2.50", "2.00", output], 0)
}

fn nanos(dollars: &Value) -> i64 {
    let text = dollars.as_str().unwrap();
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let (whole, decimals) = text.split_once('.').unwrap();
    sign * format!("{whole}{decimals:0<9}").parse::<i64>().unwrap()
}

/// The number in `call 17 …`.
fn number(request: &Received) -> u64 {
    let messages = request.body["messages"].as_array().unwrap();
    let last = messages.last().unwrap()["content"].as_str().unwrap();
    let number = last.split(' ').nth(1).unwrap();
    number.parse().unwrap()
}

/// Responds with the counts of the call's number, plain or streamed.
fn counting(request: &Received) -> Vec<Step> {
    let usage = Counts::of(number(request)).json();
    if request.body["stream"] == true {
        let last = json!({ "choices": [], "usage": usage });
        let body = events(&[chunk(json!({ "content": "Hi" }), Some("stop")), last]);
        return vec![
            Step::Send(stream_head()),
            Step::Send(body.into_bytes()),
            Step::Close,
        ];
    }
    let mut whole = completion("Hi");
    whole["usage"] = usage;
    let whole = response(200, "application/json", &whole.to_string());
    vec![Step::Send(whole)]
}

fn call(number: u64) -> (&'static str, Value) {
    let model = if number.is_multiple_of(2) {
        "writes"
    } else {
        "steps"
    };
    // As many bytes as the provider may report tokens, because charges are bounded by bytes.
    let text = format!("call {number} {}", "x".repeat(500));
    let message = json!([{ "role": "user", "content": text }]);
    let more = json!({ "messages": message, "max_tokens": 1_000, "tool_execution": "passthrough" });
    (model, hello_with(model, more))
}

/// Exact to the nano-dollar for each call and their sum, in responses, the ledger and analytics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bill_of_ten_thousand_calls_is_what_the_price_lists_say() {
    // The prices are the same in both stores; a few calls show that the sums are too.
    let all = if stores::are_shared() { 1_000 } else { 10_000 };
    let priced = Priced::start().await;
    let gateway = &priced.gateway;
    gateway.upstream.play_for_each(counting);
    let calls = stream::iter(0..all).map(|number| async move {
        let (model, body) = call(number);
        let counts = Counts::of(number);
        // Every tenth call is a stream, whose usage chunk has the cost.
        let usage = if number % 10 == 0 {
            let mut body = body;
            body["stream_options"] = json!({ "include_usage": true });
            let stream = gateway.stream(&body).await;
            stream.usage().unwrap()
        } else {
            gateway.chat(&body).await.assert_ok()["usage"].clone()
        };
        let cost = charged(model, counts);
        assert_eq!(nanos(&usage["cost"]), cost, "{model}: {counts:?}");
        let written = u32::try_from(counts.written).unwrap();
        if model == "writes" {
            let details = &usage["prompt_tokens_details"];
            assert_eq!(details["cache_write_tokens"], written, "{counts:?}");
        }
        cost
    });
    let charged: i64 = calls
        .buffer_unordered(24)
        .fold(0, async |sum, cost| sum + cost)
        .await;
    gateway.idle().await;
    let path = format!("/operator/accounts/{}", gateway.account_id);
    let account = gateway.operate(Method::GET, &path, None).await;
    let spent = 1_000_000_000_000 - nanos(&account.assert_ok()["balance"]);
    assert_eq!(spent, charged);

    let costs = (0..all).filter(|number| number.is_multiple_of(2));
    let costs = costs.map(|number| {
        (
            self::charged("writes", Counts::of(number)),
            paid(Counts::of(number)),
        )
    });
    let costs: Vec<_> = costs.collect();
    let analytics = gateway
        .operate(Method::GET, "/operator/analytics", None)
        .await;
    let analytics = analytics.assert_ok();
    let by_model = analytics["by_model"].as_array().unwrap();
    let of = |model: &str| by_model.iter().find(|sums| sums["model"] == model).unwrap();
    let (writes, steps) = (of("writes"), of("steps"));
    let margin = |sums: &Value| (nanos(&sums["provider_cost"]), nanos(&sums["margin"]));
    let provider_cost: i64 = costs.iter().map(|(_, paid)| paid).sum();
    let earned: i64 = costs.iter().map(|(charged, paid)| charged - paid).sum();
    let below = costs
        .iter()
        .filter(|(charged, paid)| charged < paid)
        .count();
    assert!(below > 10, "{below}");
    assert_eq!(margin(writes), (provider_cost, earned));
    assert_eq!(writes["below_cost_requests"], below);
    assert_eq!(
        (margin(steps), &steps["below_cost_requests"]),
        ((0, 0), &json!(0))
    );
    assert_eq!(margin(&analytics["total"]), (provider_cost, earned));
    assert_eq!(nanos(&analytics["total"]["cost"]), charged);
    let url = format!("http://{}/metrics", gateway.operator);
    let metrics = gateway.client.get(url).bearer_auth(OPERATOR_TOKEN);
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    for line in [
        format!(r#"tollgate_provider_cost_nano_usd_total{{model="writes"}} {provider_cost}"#),
        format!(r#"tollgate_below_cost_calls_total{{model="writes"}} {below}"#),
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}: {metrics}"
        );
    }
}

/// Each step is priced by the size of its own prompt, and the sum is rounded once.
#[tokio::test]
async fn the_steps_of_a_call_are_priced_one_by_one() {
    for stream in [false, true] {
        let priced = Priced::start().await;
        let gateway = &priced.gateway;
        gateway.upstream.converse([
            Turn::calls(&[CONVERT]).using(150, 10),
            Turn::says("Done.").using(60, 7),
        ]);
        let mut body = hello_with("steps", json!({ "stream": stream }));
        let usage = if stream {
            body["stream_options"] = json!({ "include_usage": true });
            gateway.stream(&body).await.usage().unwrap()
        } else {
            gateway.chat(&body).await.assert_ok()["usage"].clone()
        };
        // 150 × 7 + 10 × 1, and 60 × 7 + 7 × 110,000: each step is below the threshold, though their sum is not.
        assert_eq!(usage["cost"], "0.000000772", "{usage}");
        gateway.idle().await;
        let path = format!("/operator/accounts/{}", gateway.account_id);
        let account = gateway.operate(Method::GET, &path, None).await;
        assert_eq!(account.assert_ok()["balance"], "999.999999228");
    }
}

/// A model's prices are shown with its other properties, and the hold covers the most expensive way to use it.
#[tokio::test]
async fn prices_are_shown_and_the_highest_is_held() {
    let priced = Priced::start().await;
    let gateway = &priced.gateway;
    let model = gateway.get("/v1/models/writes").await;
    let expected = json!({
        "prompt": "0.000003", "completion": "0.000015", "image": "0", "request": "0.00001",
        "input_cache_read": "0.0000003", "input_cache_write": "0.00000375",
        "input_cache_write_1h": "0.000006",
        "above": [{
            "prompt_tokens": 300, "prompt": "0.000006", "completion": "0.0000225",
            "input_cache_read": "0.0000006", "input_cache_write": "0.0000075",
        }],
    });
    assert_eq!(model.assert_ok()["pricing"], expected);
    gateway.upstream.play_for_each(counting);
    let (_, body) = call(2);
    let answer = gateway.chat(&body).await;
    answer.assert_ok();
    let id = answer.headers["x-request-id"].to_str().unwrap();
    let details = gateway.details(id).await;
    assert_eq!(details["settlement"]["prices"], expected);
    // By any tokenizer the prompt has fewer than 300 tokens, so one-hour cache writes are the highest price. By bytes
    // it may have more, and all of it may be written to the cache.
    let (held, most) = (
        nanos(&details["hold"]["amount"]),
        nanos(&details["hold"]["most"]),
    );
    let output = 1_000 * 15_000;
    let input = held - output - 10_000;
    assert!(input > 0 && input % 6_000 == 0, "{held}");
    let dearer = most - 1_000 * 22_500 - 10_000;
    assert!(dearer > 500 * 7_500 && dearer % 7_500 == 0, "{most}");
    let counts = Counts::of(2);
    assert_eq!(nanos(&details["settlement"]["provider_cost"]), paid(counts));
}

#[test]
fn the_expected_prices_of_this_test_are_right() {
    let counts = Counts {
        prompt: 10,
        cached: 2,
        written: 5,
        hour: 1,
        output: 1,
    };
    // 3 × 3 + 2 × 0.3 + 4 × 3.75 + 1 × 6 + 1 × 15 dollars per million, and a thousandth of a cent.
    assert_eq!(
        charged("writes", counts),
        9_000 + 600 + 15_000 + 6_000 + 15_000 + 10_000
    );
    let numbers: BTreeMap<i128, u64> = (0..500).map(|n| (Counts::of(n).prompt, n)).collect();
    for prompt in [99, 100, 101, 199, 200, 201, 299, 300, 301, 399, 400, 401] {
        assert!(numbers.contains_key(&prompt), "{prompt}");
    }
}
