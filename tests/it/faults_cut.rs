//! A provider's response that is cut at each of its bytes: the caller's result and the charge.

use futures_util::StreamExt as _;
use serde_json::json;

use crate::support::{
    Customer, LedgerView, Step, TestGateway, View,
    upstream::{self, completion},
};

/// How the connection is lost. After a close, a body without a length seems complete; after a reset, it is known to
/// be incomplete.
const CLOSED: &str = "closed";
const RESET: &str = "reset";

const TEXT: &str = "Grüß 😀";

/// The shortest possible stream: two words, finish reason, usage.
fn events() -> String {
    let word = |text: &str| json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let chunks = [
        word("Grüß "),
        word("😀"),
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }),
        json!({ "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 3 } }),
    ];
    upstream::events(&chunks)
}

/// A response on a connection that is not reused.
fn answer(content_type: &str, headers: &str, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n");
    format!("{head}{headers}\r\n{body}").into_bytes()
}

/// Makes the provider send `wire`, cut where the question says.
fn serve_cut(gateway: &TestGateway, wire: Vec<u8>) {
    gateway.upstream.play_for_each(move |request| {
        let (ending, cut) = request.question().split_once(' ').unwrap();
        let sent = wire[..cut.parse().unwrap()].to_vec();
        let end = if ending == RESET {
            Step::Reset
        } else {
            Step::Close
        };
        vec![Step::Send(sent), end]
    });
}

/// The caller's result and text for each cut.
async fn results_of_cuts(
    customer: &Customer<'_>,
    ending: &str,
    cuts: std::ops::RangeInclusive<usize>,
    stream: bool,
) -> Vec<(usize, View, String)> {
    let results_of_cuts = cuts.map(async |cut| {
        let question = format!("{ending} {cut}");
        let (view, text) = customer.ask_for_text(&question, stream).await;
        (cut, view, text)
    });
    let results_of_cuts = futures_util::stream::iter(results_of_cuts);
    results_of_cuts.buffer_unordered(32).collect().await
}

/// Byte offsets at which a cut stream's result changes.
struct Marks {
    /// The first word has arrived.
    opened: usize,
    /// The terminal chunk has arrived.
    finished: usize,
    /// The usage has arrived, to its last brace.
    priced: usize,
    len: usize,
}

impl Marks {
    /// An event counts once its blank line has arrived; if the body seems to end in order, once its JSON is complete.
    fn of(wire: &[u8], needs_blank_line: bool) -> Self {
        let text = String::from_utf8(wire.to_vec()).unwrap();
        let end_of = |word: &str, blank: bool| {
            let at = text.find(word).unwrap();
            at + text[at..].find("\n\n").unwrap() + if blank { 2 } else { 0 }
        };
        Self {
            opened: end_of("Grüß", needs_blank_line),
            finished: end_of("finish_reason", needs_blank_line),
            // After the terminal chunk, how the connection ends does not matter.
            priced: end_of("usage", false),
            len: wire.len(),
        }
    }
}

/// Before the first word: an ordinary 502. Before the terminal chunk: an error event, after whole words. From then on
/// the response is finished, and from the last brace of its usage on it is charged. Before that it is free.
#[tokio::test]
async fn a_stream_that_is_cut_at_any_byte_is_free_until_its_usage_is_whole() {
    let gateway = TestGateway::start().await;
    let body = events();
    let (length, hex) = (body.len(), format!("{:x}", body.len()));
    let in_a_chunk = format!("{hex}\r\n{body}\r\n0\r\n\r\n");
    let without_length = answer("text/event-stream", "", &body);
    let with_length = format!("content-length: {length}\r\n");
    let with_length = answer("text/event-stream", &with_length, &body);
    let chunked = "transfer-encoding: chunked\r\n";
    let chunked = answer("text/event-stream", chunked, &in_a_chunk);
    for (what, wire, known_incomplete) in [
        ("without a length", without_length, false),
        ("with a length", with_length, true),
        ("chunked", chunked, true),
    ] {
        let marks = Marks::of(&wire, known_incomplete);
        serve_cut(&gateway, wire);
        let (free, charged) = (gateway.customer().await, gateway.customer().await);
        let mut seen = results_of_cuts(&free, CLOSED, 0..=marks.priced - 1, true).await;
        seen.extend(results_of_cuts(&charged, CLOSED, marks.priced..=marks.len, true).await);
        for (cut, view, text) in seen {
            let expected = match cut {
                cut if cut < marks.opened => View::FAILED,
                cut if cut < marks.finished => View::Interrupted,
                _ => View::Finished,
            };
            if view == View::Finished {
                assert_eq!(text, TEXT, "{what}, {cut}");
            }
            assert!(TEXT.starts_with(&text), "{what}, {cut}: {text}");
            assert_eq!(view, expected, "{what}, {cut}");
        }
        let calls = u32::try_from(marks.priced).unwrap();
        assert_free(&free.ledger_view().await, calls);
        let calls = u32::try_from(marks.len - marks.priced + 1).unwrap();
        assert_eq!(
            charged.ledger_view().await,
            LedgerView::charged(calls),
            "{what}"
        );
    }
}

/// Asserts that nothing was charged. The window contains the reservations of calls that finished without usage.
#[track_caller]
fn assert_free(ledger_view: &LedgerView, calls: u32) {
    let expected = LedgerView {
        tokens: ledger_view.tokens,
        ..LedgerView::free(calls)
    };
    assert_eq!(*ledger_view, expected);
}

/// A reset can discard bytes that were sent before it. So a charged call has its whole response, and no call is
/// charged before its usage is complete.
#[tokio::test]
async fn a_stream_that_is_reset_at_any_byte_is_free_or_finished() {
    let gateway = TestGateway::start().await;
    let wire = answer("text/event-stream", "", &events());
    let marks = Marks::of(&wire, true);
    serve_cut(&gateway, wire);
    let (free, charged) = (gateway.customer().await, gateway.customer().await);
    for (cut, view, text) in results_of_cuts(&free, RESET, 0..=marks.priced - 1, true).await {
        match view {
            View::FAILED => {}
            View::Interrupted => assert!(cut >= marks.opened, "{cut}"),
            View::Finished => assert!(cut >= marks.finished && text == TEXT, "{cut}: {text}"),
            other => panic!("{cut}: {other:?}"),
        }
        assert!(TEXT.starts_with(&text), "{cut}: {text}");
    }
    let calls = u32::try_from(marks.priced).unwrap();
    assert_free(&free.ledger_view().await, calls);

    let seen = results_of_cuts(&charged, RESET, marks.priced..=marks.len, true).await;
    let finished = seen.iter().filter(|(_, view, _)| *view == View::Finished);
    let finished = u32::try_from(finished.count()).unwrap();
    let calls = LedgerView {
        requests: seen.len() as u64,
        ..LedgerView::charged(finished)
    };
    assert_eq!(charged.ledger_view().await, calls);
}

#[tokio::test]
async fn an_answer_that_is_cut_at_any_byte_is_a_failure_and_free() {
    let gateway = TestGateway::start().await;
    let body = completion(TEXT).to_string();
    let with_length = format!("content-length: {}\r\n", body.len());
    let with_length = answer("application/json", &with_length, &body);
    let without_length = answer("application/json", "", &body);
    for (what, wire, endings) in [
        ("with a length", with_length, &[CLOSED, RESET][..]),
        ("without a length", without_length, &[CLOSED]),
    ] {
        let len = wire.len();
        serve_cut(&gateway, wire);
        for ending in endings {
            let (free, charged) = (gateway.customer().await, gateway.customer().await);
            for (cut, view, _) in results_of_cuts(&free, ending, 0..=len - 1, false).await {
                assert_eq!(view, View::FAILED, "{what}, {ending} at {cut}");
            }
            let calls = u32::try_from(len).unwrap();
            assert_eq!(
                free.ledger_view().await,
                LedgerView::free(calls),
                "{what}, {ending}"
            );
            if *ending == CLOSED {
                assert_eq!(
                    charged.ask(&format!("{ending} {len}"), false).await,
                    View::Answered
                );
                assert_eq!(
                    charged.ledger_view().await,
                    LedgerView::charged(1),
                    "{what}"
                );
            }
        }
    }
}
