use super::*;
use crate::telemetry::{
    Sampler,
    proto::{KeyValue, PartialSuccess},
};

/// Records all traces and sends none, because nothing runs it.
fn stuck() -> Arc<Telemetry> {
    let nowhere = Target {
        url: "http://127.0.0.1:9/v1/traces".parse().unwrap(),
        headers: Vec::new(),
        timeout: Duration::from_secs(1),
    };
    let settings = Settings {
        traces: Some(nowhere),
        metrics: None,
        resource: Vec::new(),
        sampler: Sampler {
            share: 1.0,
            follows_parent: false,
        },
        batch_delay: Duration::from_secs(5),
        metrics_interval: Duration::from_mins(1),
        records_messages: false,
        propagates: true,
    };
    Telemetry::new(settings).expect("the settings are valid")
}

fn span(text: usize) -> Span {
    Span {
        attributes: vec![KeyValue::new("text", "x".repeat(text))],
        ..Span::default()
    }
}

#[test]
fn as_many_spans_wait_as_there_is_room_for() {
    let telemetry = stuck();
    for _ in 0..QUEUED {
        telemetry.ended(span(0));
    }
    assert_eq!(telemetry.dropped().get(), 0);
    telemetry.ended(span(0));
    assert_eq!(telemetry.dropped().get(), 1);
}

#[test]
fn as_many_bytes_of_spans_wait_as_there_is_room_for() {
    let telemetry = stuck();
    let large = span(1 << 20);
    let fitting = QUEUED_BYTES / large.encoded_len();
    for _ in 0..fitting {
        telemetry.ended(large.clone());
    }
    assert_eq!(telemetry.dropped().get(), 0);
    telemetry.ended(large);
    assert_eq!(telemetry.dropped().get(), 1);
    let bytes = telemetry.queued_bytes.load(Ordering::Relaxed);
    assert!(bytes <= QUEUED_BYTES, "{bytes}");
    telemetry.ended(span(0));
    assert_eq!(telemetry.dropped().get(), 1, "a small one still fits");
}

#[test]
fn room_is_there_again_for_what_was_taken_from_the_queue() {
    let telemetry = stuck();
    let large = span(QUEUED_BYTES / 2);
    let mut waiting = telemetry.waiting.lock().unwrap().take().unwrap();
    for _ in 0..3 {
        telemetry.ended(large.clone());
        let taken = waiting.try_recv().expect("there is room");
        let mut batch = Batch::default();
        telemetry.add(&mut batch, taken);
        assert!(batch.is_full());
    }
    assert_eq!(telemetry.queued_bytes.load(Ordering::Relaxed), 0);
    assert_eq!(telemetry.dropped().get(), 0);
}

#[test]
fn what_a_collector_refuses_is_counted() {
    let response = |rejected| {
        let partial_success = Some(PartialSuccess {
            rejected,
            error_message: "too old".into(),
        });
        Response { partial_success }.encode_to_vec()
    };
    assert_eq!(refused(&response(3)), 3);
    assert_eq!(refused(&response(-1)), 0);
    assert_eq!(refused(b""), 0);
    assert_eq!(refused(b"no message"), 0);
}
