//! Unusual but valid provider streams: each is charged like a plain one.

use serde_json::json;

use crate::support::{
    LedgerView, Step, TestGateway, View,
    upstream::{chunk, events, stream_head, usage_chunk},
};

/// The forms that [`crate::c06_awkward_streams`] accepts cost as much as the plain form.
#[tokio::test]
async fn a_stream_costs_the_same_in_whatever_form_it_arrives() {
    let gateway = TestGateway::start().await;
    let plain = events(&[
        chunk(json!({ "role": "assistant", "content": "Grüß 😀" }), None),
        chunk(json!({}), Some("an unknown word")),
        usage_chunk(11, 3),
    ]);
    let mut forms: Vec<(&str, Vec<Step>)> = [
        ("plain", plain.clone()),
        ("CRLF", plain.replace('\n', "\r\n")),
        ("CR", plain.replace('\n', "\r")),
        ("no space", plain.replace("data: ", "data:")),
        (
            "comments and other fields",
            format!(": hi\n\nevent: x\nid: 1\n{plain}"),
        ),
        (
            "data over two lines",
            plain.replace(",\"object\"", ",\ndata: \"object\""),
        ),
        ("no blank line at the end", plain.trim_end().to_owned()),
        ("one newline at the end", format!("{}\n", plain.trim_end())),
    ]
    .map(|(what, body)| (what, vec![Step::Send(body.into_bytes())]))
    .into();
    let bytes = plain.as_bytes().iter();
    forms.push((
        "byte by byte",
        bytes.map(|byte| Step::Send(vec![*byte])).collect(),
    ));
    for (what, body) in forms {
        let customer = gateway.customer().await;
        let head = vec![Step::Send(stream_head())];
        gateway
            .upstream
            .play([head, body, vec![Step::Close]].concat());
        let seen = customer.ask_for_text("stream", true).await;
        assert_eq!(seen, (View::Finished, "Grüß 😀".to_owned()), "{what}");
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::charged(1),
            "{what}"
        );
    }
}
