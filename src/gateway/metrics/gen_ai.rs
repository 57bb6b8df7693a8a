//! The metrics that the conventions for generative AI name, for a collector: `/metrics` has the same under our own names.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::Histograms;
use crate::ledger::Call;

/// The bounds that the conventions propose.
const FIRST_TOKEN: [f64; 16] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
const SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    gen_ai_operation_name: &'static str,
    /// The provider's well-known name, else its name in the configuration.
    gen_ai_provider_name: String,
    gen_ai_request_model: String,
    gen_ai_response_model: String,
    error_type: Option<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(clippy::struct_field_names, reason = "the labels' names")]
struct TokenLabels {
    gen_ai_operation_name: &'static str,
    gen_ai_provider_name: String,
    gen_ai_request_model: String,
    gen_ai_response_model: String,
    gen_ai_token_type: &'static str,
}

pub(super) struct GenAi {
    registry: Registry,
    duration: Histograms<CallLabels>,
    first_token: Histograms<CallLabels>,
    tokens: Histograms<TokenLabels>,
}

impl GenAi {
    pub(super) fn new() -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
        let first_token: fn() -> Histogram = || Histogram::new(FIRST_TOKEN);
        let tokens: fn() -> Histogram = || Histogram::new(TOKENS);
        let new = Self {
            registry: Registry::default(),
            duration: Family::new_with_constructor(seconds),
            first_token: Family::new_with_constructor(first_token),
            tokens: Family::new_with_constructor(tokens),
        };
        new.registered()
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register_with_unit(
            "gen_ai_server_request_duration",
            "Time from a call's admission to its end",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register_with_unit(
            "gen_ai_server_time_to_first_token",
            "Time from the admission of a streamed call until its answer begins, after all steps with built-in tools",
            Unit::Seconds,
            self.first_token.clone(),
        );
        registry.register_with_unit(
            "gen_ai_client_token_usage",
            "Tokens that a provider has charged for one call",
            Unit::Other("tokens".into()),
            self.tokens.clone(),
        );
        self
    }

    pub(super) fn ended(&self, call: &Call, vendor: Option<&str>) {
        let provider = vendor.or(call.upstream.as_deref()).unwrap_or_default();
        let labels = CallLabels {
            gen_ai_operation_name: "chat",
            gen_ai_provider_name: provider.to_owned(),
            gen_ai_request_model: call.model.clone(),
            gen_ai_response_model: call.routed_model.clone(),
            error_type: call.charged.is_none().then(|| call.outcome.as_str()),
        };
        let seconds = |until: i64| {
            let milliseconds = u32::try_from(until - call.admitted_ms).unwrap_or(0);
            f64::from(milliseconds) / 1000.0
        };
        self.duration
            .get_or_create(&labels)
            .observe(seconds(call.ended_ms));
        let charged = call.charged.filter(|_| call.stream);
        if let Some(first) = charged.and(call.first_byte_ms) {
            self.first_token
                .get_or_create(&labels)
                .observe(seconds(first));
        }
        let Some(charged) = call.charged else { return };
        for (kind, tokens) in [
            ("input", charged.usage.prompt),
            ("output", charged.usage.completion),
        ] {
            let labels = TokenLabels {
                gen_ai_operation_name: "chat",
                gen_ai_provider_name: provider.to_owned(),
                gen_ai_request_model: call.model.clone(),
                gen_ai_response_model: call.routed_model.clone(),
                gen_ai_token_type: kind,
            };
            self.tokens
                .get_or_create(&labels)
                .observe(f64::from(tokens));
        }
    }

    /// Adds them to the text of the other metrics.
    pub(super) fn write(&self, text: &mut String) {
        // Writing to a string cannot fail.
        let _ = encode(text, &self.registry);
    }
}
