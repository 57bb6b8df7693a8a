//! Metrics for the operator, in `OpenMetrics` and in Prometheus' text format.
//!
//! Every label has few values: routes, models, providers and codes of the gateway. Text that a caller can choose
//! freely is never a label.

use std::time::Duration;

mod cache;
mod gauges;
mod gen_ai;
mod labels;
mod process;
mod text;

use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

pub(crate) use self::gauges::Snapshot;
use self::{
    cache::MetricCache,
    gauges::Gauges,
    gen_ai::GenAi,
    labels::{
        AttemptLabels, BudgetLabel, BuildLabels, CallLabels, CodeLabel, DeliveryLabels,
        HybridLabels, ModelLabel, ReplayLabel, RequestLabels, RouteLabel, TokenLabels, ToolLabels,
        UpstreamLabel,
    },
    process::Process,
};
use crate::{
    base::money::PicoUsd,
    gateway::breakdown::Counts,
    ledger::{Call, Health, Outcome, ReplayKind},
    telemetry::Telemetry,
    wire::chat::Usage,
};

/// Values of the label `kind`, in the order of [`ChargeCounters::tokens`].
const TOKEN_KINDS: [&str; 5] = [
    "input",
    "cached_input",
    "cache_write",
    "output",
    "reasoning",
];

/// Before the names of all metrics but those of the process.
const PREFIX: &str = "tollgate";

/// Upper bounds of times in seconds: from a refusal to the longest answer.
const SECONDS: [f64; 17] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    180.0, 600.0,
];

/// Counters of a model that every charge updates.
struct ChargeCounters {
    tokens: [Counter; TOKEN_KINDS.len()],
    charged: Counter,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub struct Metrics {
    registry: Registry,
    gauges: Gauges,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histograms<RouteLabel>,
    refusals: Family<CodeLabel, Counter>,
    calls: Family<CallLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    tools: Family<ToolLabels, Counter>,
    routed: Family<HybridLabels, Counter>,
    route_seconds: Histogram,
    first_byte_seconds: Histograms<ModelLabel>,
    tokens: Family<TokenLabels, Counter>,
    charged: Family<ModelLabel, Counter>,
    unbilled: Family<ModelLabel, Counter>,
    provider_cost: Family<ModelLabel, Counter>,
    below_cost: Family<ModelLabel, Counter>,
    over_bound: Family<UpstreamLabel, Counter>,
    replays: Family<ReplayLabel, Counter>,
    budget_refusals: Family<BudgetLabel, Counter>,
    deliveries: Family<DeliveryLabels, Counter>,
    cached: Cached,
    /// What the conventions for generative AI want, for a collector.
    gen_ai: Option<GenAi>,
}

/// Caches of the metrics above that every request updates.
#[derive(Default)]
struct Cached {
    served: MetricCache<RequestLabels, (Counter, Histogram)>,
    attempted: MetricCache<AttemptLabels, Counter>,
    ended: MetricCache<CallLabels, Counter>,
    first_byte: MetricCache<ModelLabel, Histogram>,
    charged: MetricCache<ModelLabel, ChargeCounters>,
}

impl Metrics {
    pub(crate) fn new(
        ledger: &Health,
        limits_clock_jumps: Counter,
        telemetry: Option<&Telemetry>,
    ) -> Self {
        let seconds = || Histogram::new(SECONDS);
        let mut metrics = Self {
            registry: Registry::default(),
            gauges: Gauges::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            refusals: Family::default(),
            calls: Family::default(),
            attempts: Family::default(),
            tools: Family::default(),
            routed: Family::default(),
            // Buckets from 5 microseconds to 2.5 milliseconds.
            route_seconds: Histogram::new(exponential_buckets(0.000_005, 2.0, 10)),
            first_byte_seconds: Family::new_with_constructor(seconds),
            tokens: Family::default(),
            charged: Family::default(),
            unbilled: Family::default(),
            provider_cost: Family::default(),
            below_cost: Family::default(),
            over_bound: Family::default(),
            replays: Family::default(),
            budget_refusals: Family::default(),
            deliveries: Family::default(),
            cached: Cached::default(),
            gen_ai: telemetry.map(|_| GenAi::new()),
        };
        metrics.register_process(telemetry);
        metrics.register_calls();
        let ours = metrics.registry.sub_registry_with_prefix(PREFIX);
        metrics.gauges.register(ours);
        metrics.register_stores(ledger, limits_clock_jumps);
        metrics
    }

    /// Registers what is known of the program and its process.
    fn register_process(&mut self, telemetry: Option<&Telemetry>) {
        self.registry.register_collector(Box::new(Process));
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels::OURS).set(1);
        let registry = self.registry.sub_registry_with_prefix(PREFIX);
        registry.register("build_info", "The program that runs; always 1", build);
        if let Some(telemetry) = telemetry {
            registry.register(
                "dropped_spans",
                "Spans that could not be sent to the collector, or that it refused",
                telemetry.dropped(),
            );
        }
    }

    /// Registers the metrics of requests and calls.
    fn register_calls(&mut self) {
        let nanos = || Unit::Other("nano_usd".into());
        let registry = self.registry.sub_registry_with_prefix(PREFIX);
        registry.register(
            "requests",
            "Requests by route and status",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "Time from a request's head to the last byte of its response",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        registry.register(
            "refusals",
            "Error responses by error code",
            self.refusals.clone(),
        );
        registry.register("calls", "Admitted calls by outcome", self.calls.clone());
        registry.register(
            "attempts",
            "Attempts with upstreams by outcome; a call can make several",
            self.attempts.clone(),
        );
        registry.register(
            "tool_calls",
            "Runs of built-in tools by outcome",
            self.tools.clone(),
        );
        registry.register(
            "routed",
            "Responses of hybrids by chosen model and reason",
            self.routed.clone(),
        );
        registry.register_with_unit(
            "route",
            "Time that hybrids took to choose a model",
            Unit::Seconds,
            self.route_seconds.clone(),
        );
        registry.register_with_unit(
            "first_byte",
            "Time from a call's admission to its provider's first byte",
            Unit::Seconds,
            self.first_byte_seconds.clone(),
        );
        registry.register("tokens", "Tokens charged", self.tokens.clone());
        registry.register_with_unit("spend", "Amount charged", nanos(), self.charged.clone());
        registry.register(
            "unbilled_streams",
            "Responses, streamed or whole, that were delivered but not charged, because the provider reported no usage",
            self.unbilled.clone(),
        );
        registry.register_with_unit(
            "provider_cost",
            "Amount that providers charge for calls, by the cost of their deployments",
            nanos(),
            self.provider_cost.clone(),
        );
        registry.register(
            "below_cost_calls",
            "Calls charged less than their provider charges for them",
            self.below_cost.clone(),
        );
        registry.register(
            "usage_over_bound",
            "Responses whose provider reported more tokens than the request could use; charged up to that bound",
            self.over_bound.clone(),
        );
        registry.register(
            "replays",
            "Requests that got the response of another call, which costs nothing",
            self.replays.clone(),
        );
        registry.register(
            "budget_refusals",
            "Requests refused because a budget had no room for them, by what the narrowest such budget stands at",
            self.budget_refusals.clone(),
        );
    }

    /// Registers the metrics of the stores and of alerts.
    fn register_stores(&mut self, ledger: &Health, limits_clock_jumps: Counter) {
        let registry = self.registry.sub_registry_with_prefix(PREFIX);
        registry.register(
            "ledger_batch_steps",
            "Changes in one ledger commit",
            ledger.batch_steps.clone(),
        );
        registry.register_with_unit(
            "ledger_commit",
            "Time that a ledger transaction takes",
            Unit::Seconds,
            ledger.commit_seconds.clone(),
        );
        registry.register(
            "alert_deliveries",
            "Attempts to deliver an alert by channel and outcome",
            self.deliveries.clone(),
        );
        registry.register(
            "late_settlements",
            "Calls charged after their hold had been released",
            ledger.late_settlements.clone(),
        );
        registry.register(
            "stray_holds",
            "Holds without a running call that audits have released",
            ledger.stray_holds.clone(),
        );
        registry.register(
            "ledger_clock_jumps",
            "Jumps of the database's clock",
            ledger.clock_jumps.clone(),
        );
        registry.register(
            "limits_clock_jumps",
            "Jumps of the Redis server's clock",
            limits_clock_jumps,
        );
    }

    /// Counts an attempt to deliver an alert.
    pub(crate) fn attempted_delivery(&self, channel: &'static str, outcome: &'static str) {
        let labels = DeliveryLabels { channel, outcome };
        self.deliveries.get_or_create(&labels).inc();
    }

    /// Counts a request after the last byte of its response.
    pub(crate) fn served(&self, route: &str, status: u16, took: Duration) {
        self.cached.served.update(
            (route, status),
            |served| served.route == route && served.status == status,
            || {
                let route = || route.to_owned();
                let seconds = RouteLabel { route: route() };
                let seconds = self.request_seconds.get_or_create_owned(&seconds);
                let route = route();
                let served = RequestLabels { route, status };
                let requests = self.requests.get_or_create_owned(&served);
                (served, (requests, seconds))
            },
            |(requests, seconds)| {
                seconds.observe(took.as_secs_f64());
                requests.inc();
            },
        );
    }

    /// Counts an error response.
    pub(crate) fn refused(&self, code: &str) {
        let code = code.to_owned();
        self.refusals.get_or_create(&CodeLabel { code }).inc();
    }

    /// Counts an attempt with an upstream.
    pub(crate) fn attempted(&self, upstream: &str, outcome: &'static str) {
        self.cached.attempted.update(
            (upstream, outcome),
            |attempted| attempted.upstream == upstream && attempted.outcome == outcome,
            || {
                let upstream = upstream.to_owned();
                let attempted = AttemptLabels { upstream, outcome };
                let attempts = self.attempts.get_or_create_owned(&attempted);
                (attempted, attempts)
            },
            |attempts| {
                attempts.inc();
            },
        );
    }

    /// Counts a response whose provider reported more tokens than the request could use.
    pub(crate) fn reported_too_much(&self, upstream: &str) {
        let upstream = upstream.to_owned();
        self.over_bound
            .get_or_create(&UpstreamLabel { upstream })
            .inc();
    }

    /// Counts a request that got the response of another call.
    pub(crate) fn replayed(&self, kind: ReplayKind) {
        let kind = kind.as_str();
        self.replays.get_or_create(&ReplayLabel { kind }).inc();
    }

    /// Counts a request that a budget refused.
    pub(crate) fn over_budget(&self, scope: &'static str) {
        self.budget_refusals
            .get_or_create(&BudgetLabel { scope })
            .inc();
    }

    /// Counts a run of a built-in tool.
    pub(crate) fn ran_tool(&self, tool: &str, outcome: &'static str) {
        let tool = tool.to_owned();
        self.tools
            .get_or_create(&ToolLabels { tool, outcome })
            .inc();
    }

    /// Counts a hybrid's choice; `took` is how long choosing took.
    pub(crate) fn routed(&self, hybrid: &str, model: &str, reason: &'static str, took: Duration) {
        self.route_seconds.observe(took.as_secs_f64());
        let (hybrid, model) = (hybrid.to_owned(), model.to_owned());
        let routed = HybridLabels {
            hybrid,
            model,
            reason,
        };
        self.routed.get_or_create(&routed).inc();
    }

    /// Counts a call that has ended, with its tokens and amounts. `vendor` is the provider's well-known name.
    pub(crate) fn ended(&self, call: &Call, vendor: Option<&str>) {
        if let Some(gen_ai) = &self.gen_ai {
            gen_ai.ended(call, vendor);
        }
        let model = call.model.as_str();
        let upstream = call.upstream.as_deref().unwrap_or_default();
        let outcome = call.outcome.as_str();
        self.cached.ended.update(
            (model, upstream, outcome),
            |ended| ended.outcome == outcome && ended.model == model && ended.upstream == upstream,
            || {
                let ended = CallLabels {
                    model: model.to_owned(),
                    upstream: upstream.to_owned(),
                    outcome,
                };
                let calls = self.calls.get_or_create_owned(&ended);
                (ended, calls)
            },
            |calls| {
                calls.inc();
            },
        );
        if let Some(first) = call.first_byte_ms {
            let took = u64::try_from(first - call.admitted_ms).unwrap_or(0);
            self.cached.first_byte.update(
                model,
                |known| known.model == model,
                || {
                    let model = ModelLabel::named(model);
                    let seconds = self.first_byte_seconds.get_or_create_owned(&model);
                    (model, seconds)
                },
                |seconds| seconds.observe(Duration::from_millis(took).as_secs_f64()),
            );
        }
        if call.outcome == Outcome::NoUsage {
            self.unbilled.get_or_create(&ModelLabel::named(model)).inc();
        }
        if let Some(cost) = call.provider_cost.map(PicoUsd::rounded_up) {
            let nanos = u64::try_from(cost.nanos()).unwrap_or(0);
            let of_model = ModelLabel::named(model);
            self.provider_cost.get_or_create(&of_model).inc_by(nanos);
            let charged = call.charged.map(|charged| charged.cost);
            if charged.unwrap_or_default() < cost {
                self.below_cost.get_or_create(&of_model).inc();
            }
        }
        let Some(charged) = call.charged else { return };
        let Usage {
            prompt,
            cached,
            cache_write,
            cache_write_1h: _,
            completion,
            reasoning,
        } = charged.usage;
        let cost = u64::try_from(charged.cost.nanos()).unwrap_or(0);
        self.cached.charged.update(
            model,
            |known| known.model == model,
            || (ModelLabel::named(model), self.charge_counters(model)),
            |counters| {
                let counts = [prompt, cached, cache_write, completion, reasoning];
                for (counter, tokens) in counters.tokens.iter().zip(counts) {
                    counter.inc_by(tokens.into());
                }
                counters.charged.inc_by(cost);
            },
        );
    }

    /// The counts so far of calls by model, upstream and outcome, and of the API's requests by status.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.cached.ended.for_each(|ended, calls| {
            let labels = (ended.model.clone(), ended.upstream.clone(), ended.outcome);
            *counts.calls.entry(labels).or_default() += calls.get();
        });
        self.cached.served.for_each(|served, (requests, _)| {
            if served.route.starts_with("/v1/") {
                *counts.statuses.entry(served.status).or_default() += requests.get();
            }
        });
        counts
    }

    fn charge_counters(&self, model: &str) -> ChargeCounters {
        let tokens = TOKEN_KINDS.map(|kind| {
            let model = model.to_owned();
            self.tokens
                .get_or_create_owned(&TokenLabels { model, kind })
        });
        let charged = self.charged.get_or_create_owned(&ModelLabel::named(model));
        ChargeCounters { tokens, charged }
    }

    /// Returns all metrics as text, in `OpenMetrics` format or in Prometheus' own.
    pub(crate) fn text(&self, ledger: &Health, now: &Snapshot, open_metrics: bool) -> String {
        self.gauges.set(ledger, now);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        if open_metrics {
            return text;
        }
        text::prometheus(&text)
    }

    /// Returns all metrics for a collector, in `OpenMetrics` format.
    pub(crate) fn for_collector(&self, ledger: &Health, now: &Snapshot) -> String {
        let mut text = self.text(ledger, now, true);
        if let Some(gen_ai) = &self.gen_ai {
            gen_ai.write(&mut text);
        }
        text
    }
}
