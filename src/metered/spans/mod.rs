//! The spans of a call: its admission, each attempt with a provider, each tool, and its charge.
//!
//! Attributes are named by the conventions for generative AI where they have a name, and `tollgate.…` where not. Prompts
//! and answers are in them only if the operator wants them.

use std::sync::Arc;

use tokio::time::Instant;

mod messages;
mod said;

use self::said::Said;
use super::NotStarted;
use crate::{
    ledger::{Call, Held, Outcome},
    prompt::{ChatCall, Route},
    telemetry::{Span, SpanKind, Trace},
    upstream::deployments::Deployment,
    wire::{
        chat::{Answer, ToolCall, Usage},
        error::{GatewayError, UpstreamError},
        part::Part,
    },
};

/// The spans of one call. Without a trace that is recorded, it has none, and nothing is done.
#[derive(Default)]
pub(crate) struct Spans {
    trace: Option<Arc<Trace>>,
    /// The attempt that runs.
    attempt: Option<Span>,
    attempts: u32,
    /// The streamed answer, if it is recorded.
    said: Option<Said>,
}

/// The admission of a call.
pub(crate) struct Admission(Option<Span>);

impl Admission {
    pub(crate) fn begin(call: &ChatCall) -> Self {
        let trace = call.trace.as_ref();
        Self(trace.and_then(|trace| trace.span("admit".into(), SpanKind::Internal)))
    }

    pub(crate) fn placed(mut self, hold: &Held, reserved: u64) {
        let Some(span) = &mut self.0 else { return };
        span.set("tollgate.call.id", hold.id().to_string());
        span.set("tollgate.hold.nano_usd", hold.amount());
        let reserved = i64::try_from(reserved).unwrap_or(i64::MAX);
        span.set("tollgate.reserved_tokens", reserved);
    }

    pub(crate) fn refused(mut self, refused: &NotStarted) {
        let Some(span) = &mut self.0 else { return };
        let error = match refused {
            NotStarted::Refused(error)
            | NotStarted::NotAdmitted(error)
            | NotStarted::Failed(error, _) => error,
            NotStarted::Stale => return, // it is admitted again, with what is known by then
        };
        if let GatewayError::BudgetExceeded(budget) = error {
            span.set("tollgate.budget.id", budget.id.as_str());
            span.set("tollgate.budget.scope", budget.scope);
            span.set("tollgate.budget.scope_id", budget.scope_id.as_str());
        }
        let code = error.envelope().code;
        span.fail(code.as_deref().unwrap_or("refused"), &error.cause());
    }
}

impl Spans {
    pub(crate) fn of(call: &ChatCall) -> Self {
        Self {
            trace: call.trace.clone(),
            ..Self::default()
        }
    }

    /// Begins an attempt. The provider's own spans continue it.
    pub(crate) fn begin(&mut self, call: &ChatCall, deployment: &Deployment) {
        let Some(trace) = &self.trace else { return };
        let requested = call.route.requested_name();
        let Some(mut span) = trace.span(format!("chat {requested}"), SpanKind::Client) else {
            return;
        };
        self.attempts += 1;
        trace.take_model(); // of an attempt that was left
        span.is_continued();
        describe(&mut span, call, deployment);
        span.set("tollgate.attempt", self.attempts);
        if trace.records_messages() {
            messages::set_input(&mut span, &call.messages);
            self.said = call.stream.then(Said::default);
        }
        self.attempt = Some(span);
    }

    /// Takes the span of the attempt at its end, with the model that the response named.
    fn ended(&mut self) -> Option<Span> {
        let mut span = self.attempt.take()?;
        span.set_if("gen_ai.response.model", self.trace.as_ref()?.take_model());
        Some(span)
    }

    /// The attempt has failed.
    pub(crate) fn failed(&mut self, error: &UpstreamError) {
        if let Some(mut span) = self.ended() {
            if let Some(status) = error.status() {
                span.set("http.response.status_code", status);
            }
            span.fail(error.kind(), &error.to_string());
        }
    }

    /// The answer of the attempt is not delivered, because another model should improve on it.
    pub(crate) fn discarded(&mut self, usage: Option<Usage>) {
        if let (Some(span), Some(usage)) = (&mut self.attempt, usage) {
            set_usage(span, usage);
        }
    }

    /// The provider has begun to answer, with its first output ([`Part::is_token`]) at this time if it streams.
    pub(crate) fn first_chunk(&mut self, at: Option<Instant>) {
        if let (Some(span), Some(at)) = (&mut self.attempt, at) {
            let seconds = span.elapsed() - at.elapsed().as_secs_f64();
            span.set("gen_ai.response.time_to_first_chunk", seconds.max(0.0));
        }
    }

    /// A part of a streamed answer is relayed.
    pub(crate) fn part(&mut self, part: &Part) {
        if let Some(said) = &mut self.said {
            said.part(part);
        }
    }

    /// The answer of the attempt is whole.
    pub(crate) fn answered(&mut self, answer: &Answer) {
        let Some(mut span) = self.ended() else {
            return;
        };
        let trace = self.trace.as_ref();
        if trace.is_some_and(|trace| trace.records_messages()) {
            messages::set_output(&mut span, answer);
        }
        let reasons = answer.choices.iter().map(|choice| choice.finish.as_str());
        describe_end(&mut span, reasons.collect(), answer.usage);
    }

    /// The stream of the attempt is at its end.
    pub(crate) fn streamed(
        &mut self,
        reasons: impl FnOnce() -> Vec<&'static str>,
        usage: Option<Usage>,
    ) {
        let Some(mut span) = self.ended() else {
            return;
        };
        let reasons = reasons();
        if let Some(said) = self.said.take() {
            said.describe(&mut span, &reasons);
        }
        describe_end(&mut span, reasons, usage);
    }

    /// Begins the run of a built-in tool.
    pub(crate) fn tool(&self, tool: &str, call: &ToolCall) -> Option<Span> {
        let trace = self.trace.as_ref()?;
        let mut span = trace.span(format!("execute_tool {tool}"), SpanKind::Internal)?;
        span.set("gen_ai.operation.name", "execute_tool");
        span.set("gen_ai.tool.name", tool);
        span.set("gen_ai.tool.type", "function");
        span.set("gen_ai.tool.call.id", call.id.as_str());
        if trace.records_messages() {
            let arguments = call.function.arguments.decode();
            messages::set_text(&mut span, "gen_ai.tool.call.arguments", arguments);
        }
        Some(span)
    }

    /// Begins the charge.
    pub(crate) fn charge(&self) -> Option<Span> {
        let trace = self.trace.as_ref()?;
        trace.span("charge".into(), SpanKind::Internal)
    }

    /// The call has ended without a charge.
    pub(crate) fn released(&mut self, outcome: Outcome, failure: Option<&str>) {
        let name = failure.map_or("not charged", |_| "failed");
        if let Some(mut attempt) = self.ended() {
            attempt.fail(outcome.as_str(), failure.unwrap_or(name));
        }
        let trace = self.trace.as_ref();
        let span = trace.and_then(|trace| trace.span("release".into(), SpanKind::Internal));
        if let Some(mut span) = span {
            span.set("tollgate.outcome", outcome.as_str());
            span.set_if("tollgate.failure", failure);
        }
    }
}

/// What a charge says of the call.
pub(crate) fn charged(span: Option<Span>, call: &Call) {
    let Some(mut span) = span else { return };
    span.set("tollgate.call.id", call.id.to_string());
    span.set("tollgate.outcome", call.outcome.as_str());
    span.set("tollgate.hold.nano_usd", call.held.nanos());
    if let Some(charged) = call.charged {
        let usage = charged.usage;
        span.set("tollgate.charge.nano_usd", charged.cost.nanos());
        // Not `gen_ai.usage`, which the attempts have: they would count twice.
        span.set("tollgate.charge.input_tokens", usage.prompt);
        span.set("tollgate.charge.output_tokens", usage.completion);
        span.set("tollgate.charge.cached_tokens", usage.cached);
    }
    if let Some(cost) = call.provider_cost {
        span.set("tollgate.provider_cost.nano_usd", cost.rounded_up().nanos());
    }
}

/// What is known of an attempt when it begins.
fn describe(span: &mut Span, call: &ChatCall, deployment: &Deployment) {
    let Route {
        target, decision, ..
    } = &call.route;
    span.set("gen_ai.operation.name", "chat");
    span.set("gen_ai.provider.name", &*deployment.vendor);
    span.set("gen_ai.request.model", call.route.requested_name());
    span.set("gen_ai.request.stream", call.stream);
    span.set_if("gen_ai.request.max_tokens", call.budget.max_tokens);
    span.set_if("gen_ai.request.temperature", call.settings.temperature);
    span.set_if("gen_ai.request.top_p", call.settings.top_p);
    span.set_if("gen_ai.request.seed", call.settings.seed);
    span.set_if("gen_ai.request.choice.count", call.n.filter(|n| *n != 1));
    span.set_if(
        "gen_ai.conversation.id",
        call.agent
            .as_ref()
            .and_then(|agent| agent.session.as_deref()),
    );
    span.set("tollgate.upstream", &*deployment.name);
    span.set("tollgate.model", target.id.as_str());
    if let Some(decision) = decision {
        span.set("tollgate.route.reason", decision.reason.as_str());
        span.set("tollgate.route.hybrid", decision.hybrid.as_str());
    }
}

fn describe_end(span: &mut Span, reasons: Vec<&'static str>, usage: Option<Usage>) {
    span.set("gen_ai.response.finish_reasons", reasons);
    if let Some(usage) = usage {
        set_usage(span, usage);
    }
}

fn set_usage(span: &mut Span, usage: Usage) {
    span.set("gen_ai.usage.input_tokens", usage.prompt);
    span.set("gen_ai.usage.output_tokens", usage.completion);
    span.set("gen_ai.usage.cache_read.input_tokens", usage.cached);
    span.set(
        "gen_ai.usage.cache_creation.input_tokens",
        usage.cache_write,
    );
    span.set("gen_ai.usage.reasoning.output_tokens", usage.reasoning);
}
