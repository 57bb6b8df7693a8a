//! Usage that providers report: charged when it is plausible, free when it is not.

use serde_json::{Value, json};

use crate::support::{
    LedgerView, Step, TestGateway, View,
    ledger_view::PRICE,
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

/// A call's cost in nano-dollars and its tokens; `None` if it is free.
type Bill = Option<(i64, u64)>;

const FREE: Bill = None;
const USUAL: Bill = Some((PRICE, 14));

#[track_caller]
fn assert_billed(ledger_view: &LedgerView, bill: Bill, what: &str) {
    let Some((spent, tokens)) = bill else {
        return ledger_view.assert_uncounted(1);
    };
    let expected = LedgerView {
        spent,
        charges: 1,
        requests: 1,
        tokens,
    };
    assert_eq!(*ledger_view, expected, "{what}");
}

/// Usage as providers report it, and the resulting bill.
fn reports() -> Vec<(&'static str, Value, Bill)> {
    let counts = |prompt: Value, completion: Value| json!({ "prompt_tokens": prompt, "completion_tokens": completion });
    let with = |more: Value| {
        let mut counts = counts(json!(11), json!(3));
        counts
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        counts
    };
    let cached =
        |cached: Value| with(json!({ "prompt_tokens_details": { "cached_tokens": cached } }));
    let reasoning = |tokens: Value| {
        with(json!({ "completion_tokens_details": { "reasoning_tokens": tokens } }))
    };
    vec![
        ("two counts", counts(json!(11), json!(3)), USUAL),
        ("a wrong total", with(json!({ "total_tokens": 99 })), USUAL),
        ("zeros", counts(json!(0), json!(0)), Some((0, 0))),
        ("null", Value::Null, FREE),
        ("nothing", json!({}), FREE),
        ("a total alone", json!({ "total_tokens": 14 }), FREE),
        ("no completion", json!({ "prompt_tokens": 11 }), FREE),
        ("no prompt", json!({ "completion_tokens": 3 }), FREE),
        ("a list", json!([11, 3]), FREE),
        ("a text", json!("11 and 3"), FREE),
        ("a negative prompt", counts(json!(-11), json!(3)), FREE),
        ("a negative completion", counts(json!(11), json!(-3)), FREE),
        ("a fraction", counts(json!(11.5), json!(3)), FREE),
        (
            "a whole number with a point",
            counts(json!(11.0), json!(3)),
            FREE,
        ),
        ("texts", counts(json!("11"), json!("3")), FREE),
        ("a flag", counts(json!(true), json!(3)), FREE),
        ("a null count", counts(json!(11), json!(null)), FREE),
        ("2³¹", counts(json!(1_u64 << 31), json!(3)), FREE),
        (
            "2³² + 11",
            counts(json!((1_u64 << 32) + 11), json!(3)),
            FREE,
        ),
        ("2⁶⁴ − 1", counts(json!(u64::MAX), json!(u64::MAX)), FREE),
        ("10³⁰", counts(json!(1e30), json!(3)), FREE),
        // 66,000 is this model's largest output, 128 the requested budget, and 1,050,000 its largest input.
        (
            "all it can say, and a little",
            counts(json!(11), json!(69_300)),
            Some((11 * 2_000 + 128 * 9_000, 139)),
        ),
        (
            "more than it can say",
            counts(json!(11), json!(69_301)),
            FREE,
        ),
        (
            "more than it can read",
            counts(json!(1_050_001), json!(3)),
            FREE,
        ),
        (
            "everything cached",
            cached(json!(11)),
            Some((11 * 200 + 3 * 9_000, 14)),
        ),
        ("cached null", cached(json!(null)), USUAL),
        ("more cached than read", cached(json!(12)), FREE),
        ("negative cached", cached(json!(-1)), FREE),
        ("cached in words", cached(json!("4")), FREE),
        (
            "another word for cached",
            with(json!({ "prompt_cache_hit_tokens": 4 })),
            Some((7 * 2_000 + 4 * 200 + 3 * 9_000, 14)),
        ),
        ("reasoning inside", reasoning(json!(2)), USUAL),
        (
            "reasoning beside",
            reasoning(json!(5)),
            Some((11 * 2_000 + 8 * 9_000, 19)),
        ),
        ("negative reasoning", reasoning(json!(-2)), FREE),
        ("endless reasoning", reasoning(json!(2_000_000_000)), FREE),
    ]
}

/// Without plausible usage a response is delivered and costs nothing, plain or streamed.
#[tokio::test]
async fn only_plausible_counts_are_charged() {
    let gateway = TestGateway::start().await;
    for (what, usage, bill) in reports() {
        let mut whole = completion("Hi");
        whole["usage"] = usage.clone();
        let whole = response(200, "application/json", &whole.to_string());
        let last = json!({ "choices": [], "usage": usage });
        let streamed = events(&[chunk(json!({ "content": "Hi" }), Some("stop")), last]);
        let streamed = [stream_head(), streamed.into_bytes()].concat();

        let customer = gateway.customer().await;
        gateway.upstream.play(vec![Step::Send(whole)]);
        assert_eq!(customer.ask("whole", false).await, View::Answered, "{what}");
        assert_billed(&customer.ledger_view().await, bill, what);

        let customer = gateway.customer().await;
        gateway
            .upstream
            .play(vec![Step::Send(streamed), Step::Close]);
        assert_eq!(customer.ask("stream", true).await, View::Finished, "{what}");
        assert_billed(&customer.ledger_view().await, bill, what);
    }
}

/// Usage may be in several places of a stream: the last one before the end counts, once.
#[tokio::test]
async fn usage_counts_once_wherever_it_is_in_the_stream() {
    let gateway = TestGateway::start().await;
    let word = chunk(json!({ "content": "Hi" }), None);
    let stop = chunk(json!({}), Some("stop"));
    let usage = usage_chunk(11, 3);
    let with_usage = |chunk: &Value, usage: &Value| {
        let mut chunk = chunk.clone();
        chunk["usage"] = usage["usage"].clone();
        chunk
    };
    let absurd = usage_chunk(11, 1_000_000);
    let unreadable = json!({ "choices": [], "usage": { "prompt_tokens": -1 } });
    let failure = json!({ "error": { "message": "no" }, "usage": usage["usage"] });
    let twice = format!(
        "{{\"choices\":[],\"usage\":{0},\"usage\":{0}}}",
        usage["usage"]
    );
    let done = "data: [DONE]\n\n";
    let bare = |chunks: &[Value]| events(chunks).replace(done, "");
    let all = |chunks: &[&Value]| events(&chunks.iter().copied().cloned().collect::<Vec<_>>());
    for (what, body, view, bill) in [
        (
            "after the end",
            all(&[&word, &stop, &usage]),
            View::Finished,
            USUAL,
        ),
        (
            "with the end",
            all(&[&word, &with_usage(&stop, &usage)]),
            View::Finished,
            USUAL,
        ),
        (
            "before the end",
            all(&[&word, &usage, &stop]),
            View::Finished,
            USUAL,
        ),
        (
            "first of all",
            all(&[&usage, &word, &stop]),
            View::Finished,
            USUAL,
        ),
        (
            "growing",
            all(&[
                &with_usage(&word, &usage_chunk(11, 1)),
                &with_usage(&word, &usage_chunk(11, 2)),
                &stop,
                &usage,
            ]),
            View::Finished,
            USUAL,
        ),
        (
            "twice the same",
            all(&[&word, &stop, &usage, &usage]),
            View::Finished,
            USUAL,
        ),
        (
            "more, then less",
            all(&[&word, &usage_chunk(500, 500), &stop, &usage]),
            View::Finished,
            USUAL,
        ),
        (
            "absurd, then corrected",
            all(&[&word, &absurd, &stop, &usage]),
            View::Finished,
            USUAL,
        ),
        (
            "then absurd",
            all(&[&word, &usage, &stop, &absurd]),
            View::Finished,
            FREE,
        ),
        (
            "then something unreadable",
            all(&[&word, &usage, &stop, &unreadable]),
            View::Finished,
            USUAL,
        ),
        ("none", all(&[&word, &stop]), View::Finished, FREE),
        (
            "after [DONE]",
            format!("{}data: {usage}\n\n", all(&[&word, &stop])),
            View::Finished,
            FREE,
        ),
        (
            "and another after [DONE]",
            format!(
                "{}data: {}\n\n",
                all(&[&word, &stop, &usage]),
                usage_chunk(500, 500)
            ),
            View::Finished,
            USUAL,
        ),
        (
            "no [DONE]",
            bare(&[word.clone(), stop.clone(), usage.clone()]),
            View::Finished,
            USUAL,
        ),
        (
            "no [DONE], no usage",
            bare(&[word.clone(), stop.clone()]),
            View::Finished,
            FREE,
        ),
        ("no end", all(&[&word, &usage]), View::Interrupted, FREE),
        (
            "no end, no [DONE]",
            bare(&[word.clone(), usage.clone()]),
            View::Interrupted,
            FREE,
        ),
        (
            "beside a failure",
            all(&[&word, &failure]),
            View::Interrupted,
            FREE,
        ),
        (
            "before a failure",
            all(&[&word, &usage, &json!({ "error": {} })]),
            View::Interrupted,
            FREE,
        ),
        (
            "an end that is a failure",
            all(&[&word, &usage, &chunk(json!({}), Some("error"))]),
            View::Interrupted,
            FREE,
        ),
        (
            "twice in one object",
            format!("{}data: {twice}\n\n", bare(&[word.clone(), stop.clone()])),
            View::Interrupted,
            FREE,
        ),
    ] {
        let customer = gateway.customer().await;
        gateway.upstream.answer_stream(&body);
        assert_eq!(customer.ask("stream", true).await, view, "{what}");
        let ledger_view = customer.ledger_view().await;
        match view {
            View::Interrupted => assert_eq!(ledger_view, LedgerView::free(1), "{what}"),
            _ => assert_billed(&ledger_view, bill, what),
        }
    }
}

/// Implausible usage is not shown to the caller either.
#[tokio::test]
async fn implausible_usage_is_not_relayed() {
    let gateway = TestGateway::start().await;
    let word = chunk(json!({ "content": "Hi" }), Some("stop"));
    gateway
        .upstream
        .answer_chunks(&[word, usage_chunk(11, 1_000_000)]);
    let mut body = crate::support::gateway::hello("svc-standard");
    body["stream_options"] = json!({ "include_usage": true });
    let stream = gateway.stream(&body).await;
    assert!(stream.is_done());
    assert_eq!(stream.usage(), None);
}
