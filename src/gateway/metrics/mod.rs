//! What is counted for the operator, in Prometheus' form.
//!
//! Every label has few values: routes, models, providers and codes of ours. What a caller can make
//! up is no label.

use std::{collections::BTreeMap, time::Duration};

mod known;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use self::known::Known;
use crate::{
    backoffice,
    base::money::PicoUsd,
    ledger::{Call, Health, Outcome},
    wire::chat::Usage,
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Served {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Model {
    model: String,
}

impl Model {
    fn named(model: &str) -> Self {
        let model = model.to_owned();
        Self { model }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    model: String,
    upstream: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tokens {
    model: String,
    kind: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempted {
    upstream: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Upstream {
    upstream: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RanTool {
    tool: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Routed {
    hybrid: String,
    model: String,
    reason: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlertKind {
    kind: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlertTold {
    channel: &'static str,
    outcome: &'static str,
}

/// In the order of [`Paid::tokens`].
const TOKEN_KINDS: [&str; 5] = [
    "input",
    "cached_input",
    "cache_write",
    "output",
    "reasoning",
];

/// What is counted for a model with every charge.
struct Paid {
    tokens: [Counter; TOKEN_KINDS.len()],
    charged: Counter,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub struct Metrics {
    registry: Registry,
    requests: Family<Served, Counter>,
    request_seconds: Histograms<Route>,
    refusals: Family<Code, Counter>,
    calls: Family<Ended, Counter>,
    attempts: Family<Attempted, Counter>,
    tools: Family<RanTool, Counter>,
    routed: Family<Routed, Counter>,
    route_seconds: Histogram,
    first_byte_seconds: Histograms<Model>,
    tokens: Family<Tokens, Counter>,
    charged: Family<Model, Counter>,
    unbilled: Family<Model, Counter>,
    provider_cost: Family<Model, Counter>,
    below_cost: Family<Model, Counter>,
    over_bound: Family<Upstream, Counter>,
    holds: Gauge,
    held: Gauge,
    abandoned: Gauge,
    waiting: Gauge,
    spooled: Gauge,
    ledger_ready: Gauge,
    limits_ready: Gauge,
    violations: Gauge,
    alerts: Family<AlertKind, Gauge>,
    alerts_told: Family<AlertTold, Counter>,
    often: Often,
}

/// What is counted with every request, of the above.
#[derive(Default)]
struct Often {
    served: Known<Served, (Counter, Histogram)>,
    attempted: Known<Attempted, Counter>,
    ended: Known<Ended, Counter>,
    first_byte: Known<Model, Histogram>,
    paid: Known<Model, Paid>,
}

/// What is measured when it is asked for.
pub struct Snapshot {
    pub holds: usize,
    pub held_nanos: i64,
    /// Calls that go on though their clients have left.
    pub abandoned: usize,
    /// Charges in the spool.
    pub spooled: usize,
    pub violations: usize,
    pub limits_ready: bool,
    /// How many alerts are open, by kind.
    pub alerts: BTreeMap<backoffice::AlertKind, i64>,
}

impl Metrics {
    pub fn new(ledger: &Health, limits_clock_jumps: Counter) -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.5, 14));
        let mut metrics = Self {
            registry: Registry::with_prefix("tollgate"),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            refusals: Family::default(),
            calls: Family::default(),
            attempts: Family::default(),
            tools: Family::default(),
            routed: Family::default(),
            // From 5 microseconds to 2.5 milliseconds.
            route_seconds: Histogram::new(exponential_buckets(0.000_005, 2.0, 10)),
            first_byte_seconds: Family::new_with_constructor(seconds),
            tokens: Family::default(),
            charged: Family::default(),
            unbilled: Family::default(),
            provider_cost: Family::default(),
            below_cost: Family::default(),
            over_bound: Family::default(),
            holds: Gauge::default(),
            held: Gauge::default(),
            abandoned: Gauge::default(),
            waiting: Gauge::default(),
            spooled: Gauge::default(),
            ledger_ready: Gauge::default(),
            limits_ready: Gauge::default(),
            violations: Gauge::default(),
            alerts: Family::default(),
            alerts_told: Family::default(),
            often: Often::default(),
        };
        metrics.register_calls();
        metrics.register_state(ledger);
        metrics.register_faults(ledger, limits_clock_jumps);
        metrics
    }

    /// What is counted with requests and calls.
    fn register_calls(&mut self) {
        let nanos = || Unit::Other("nano_usd".into());
        let registry = &mut self.registry;
        registry.register("requests", "Requests answered", self.requests.clone());
        registry.register_with_unit(
            "request_duration",
            "From a request's head to the last byte of its answer",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        registry.register("refusals", "Errors answered", self.refusals.clone());
        registry.register(
            "calls",
            "Admitted calls by how they ended",
            self.calls.clone(),
        );
        registry.register(
            "attempts",
            "Upstreams asked, by how that went; a call can make several",
            self.attempts.clone(),
        );
        registry.register(
            "tool_calls",
            "Calls of the gateway's own tools, by how that went",
            self.tools.clone(),
        );
        registry.register(
            "routed",
            "Answers of hybrids, by who gave them and why",
            self.routed.clone(),
        );
        registry.register_with_unit(
            "route",
            "How long hybrids took to choose",
            Unit::Seconds,
            self.route_seconds.clone(),
        );
        registry.register_with_unit(
            "first_byte",
            "From a call's admission to its provider's first byte",
            Unit::Seconds,
            self.first_byte_seconds.clone(),
        );
        registry.register("tokens", "Tokens charged for", self.tokens.clone());
        registry.register_with_unit("spend", "What was charged", nanos(), self.charged.clone());
        registry.register(
            "unbilled_streams",
            "Answers, streamed or whole, that were delivered and not charged, for want of usage",
            self.unbilled.clone(),
        );
        registry.register_with_unit(
            "provider_cost",
            "What providers charge for calls, by the cost of their deployments",
            nanos(),
            self.provider_cost.clone(),
        );
        registry.register(
            "below_cost_calls",
            "Calls that were charged less than their provider charges for them",
            self.below_cost.clone(),
        );
        registry.register(
            "usage_over_bound",
            "Answers whose provider reported more tokens than the request could use; charged up to that",
            self.over_bound.clone(),
        );
        registry.register("holds", "Calls with credit set aside", self.holds.clone());
        registry.register_with_unit("held", "Credit set aside", nanos(), self.held.clone());
        registry.register(
            "abandoned_calls",
            "Calls that are read to their end though their clients have left",
            self.abandoned.clone(),
        );
    }

    /// How the gateway and its stores are.
    fn register_state(&mut self, ledger: &Health) {
        let registry = &mut self.registry;
        registry.register(
            "ledger_batch_steps",
            "Changes committed together",
            ledger.batch_steps.clone(),
        );
        registry.register_with_unit(
            "ledger_commit",
            "How long a transaction takes",
            Unit::Seconds,
            ledger.commit_seconds.clone(),
        );
        registry.register(
            "ledger_waiting",
            "Changes not committed yet",
            self.waiting.clone(),
        );
        registry.register(
            "spooled_charges",
            "Charges in the spool that wait to be settled in the store",
            self.spooled.clone(),
        );
        registry.register(
            "ledger_ready",
            "Whether charges can be written: 1 or 0",
            self.ledger_ready.clone(),
        );
        registry.register(
            "limits_ready",
            "Whether requests can be counted: 1 or 0",
            self.limits_ready.clone(),
        );
        registry.register(
            "audit_violations",
            "Accounts whose books did not add up at the last audit",
            self.violations.clone(),
        );
        registry.register(
            "alerts_open",
            "Alerts that are open, by kind",
            self.alerts.clone(),
        );
        registry.register(
            "alert_deliveries",
            "Attempts to tell somebody of an alert, by how that went",
            self.alerts_told.clone(),
        );
    }

    /// What goes wrong with stores that gateways share.
    fn register_faults(&mut self, ledger: &Health, limits_clock_jumps: Counter) {
        let registry = &mut self.registry;
        registry.register(
            "late_settlements",
            "Calls that were charged after their hold was gone",
            ledger.late_settlements.clone(),
        );
        registry.register(
            "stray_holds",
            "Holds without a running call that audits released",
            ledger.stray_holds.clone(),
        );
        registry.register(
            "ledger_clock_jumps",
            "How often the database's clock was found to have been set",
            ledger.clock_jumps.clone(),
        );
        registry.register(
            "limits_clock_jumps",
            "How often the clock of Redis was found to have been set",
            limits_clock_jumps,
        );
    }

    /// It was tried to tell somebody of an alert.
    pub fn told_of_alert(&self, channel: &'static str, outcome: &'static str) {
        let told = AlertTold { channel, outcome };
        self.alerts_told.get_or_create(&told).inc();
    }

    /// A request is over, its last byte included.
    pub fn served(&self, route: &str, status: u16, took: Duration) {
        self.often.served.count(
            (route, status),
            |served| served.route == route && served.status == status,
            || {
                let route = || route.to_owned();
                let seconds = Route { route: route() };
                let seconds = self.request_seconds.get_or_create_owned(&seconds);
                let route = route();
                let served = Served { route, status };
                let requests = self.requests.get_or_create_owned(&served);
                (served, (requests, seconds))
            },
            |(requests, seconds)| {
                seconds.observe(took.as_secs_f64());
                requests.inc();
            },
        );
    }

    /// A request was answered with this error.
    pub fn refused(&self, code: &str) {
        let code = code.to_owned();
        self.refusals.get_or_create(&Code { code }).inc();
    }

    /// An upstream was asked.
    pub fn attempted(&self, upstream: &str, outcome: &'static str) {
        self.often.attempted.count(
            (upstream, outcome),
            |attempted| attempted.upstream == upstream && attempted.outcome == outcome,
            || {
                let upstream = upstream.to_owned();
                let attempted = Attempted { upstream, outcome };
                let attempts = self.attempts.get_or_create_owned(&attempted);
                (attempted, attempts)
            },
            |attempts| {
                attempts.inc();
            },
        );
    }

    /// A provider reported more tokens than the request could use.
    pub fn reported_too_much(&self, upstream: &str) {
        let upstream = upstream.to_owned();
        self.over_bound.get_or_create(&Upstream { upstream }).inc();
    }

    /// A tool was run.
    pub fn ran_tool(&self, tool: &str, outcome: &'static str) {
        let tool = tool.to_owned();
        self.tools.get_or_create(&RanTool { tool, outcome }).inc();
    }

    /// A hybrid's call was answered.
    pub fn routed(&self, hybrid: &str, model: &str, reason: &'static str, took: Duration) {
        self.route_seconds.observe(took.as_secs_f64());
        let (hybrid, model) = (hybrid.to_owned(), model.to_owned());
        let routed = Routed {
            hybrid,
            model,
            reason,
        };
        self.routed.get_or_create(&routed).inc();
    }

    /// A call is over.
    pub fn ended(&self, call: &Call) {
        let model = call.model.as_str();
        let upstream = call.upstream.as_deref().unwrap_or_default();
        let outcome = call.outcome.as_str();
        self.often.ended.count(
            (model, upstream, outcome),
            |ended| ended.outcome == outcome && ended.model == model && ended.upstream == upstream,
            || {
                let ended = Ended {
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
            self.often.first_byte.count(
                model,
                |known| known.model == model,
                || {
                    let model = Model::named(model);
                    let seconds = self.first_byte_seconds.get_or_create_owned(&model);
                    (model, seconds)
                },
                |seconds| seconds.observe(Duration::from_millis(took).as_secs_f64()),
            );
        }
        if call.outcome == Outcome::NoUsage {
            self.unbilled.get_or_create(&Model::named(model)).inc();
        }
        if let Some(cost) = call.provider_cost.map(PicoUsd::rounded_up) {
            let nanos = u64::try_from(cost.nanos()).unwrap_or(0);
            let of_model = Model::named(model);
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
        self.often.paid.count(
            model,
            |known| known.model == model,
            || (Model::named(model), self.paid(model)),
            |paid| {
                let counts = [prompt, cached, cache_write, completion, reasoning];
                for (counter, tokens) in paid.tokens.iter().zip(counts) {
                    counter.inc_by(tokens.into());
                }
                paid.charged.inc_by(cost);
            },
        );
    }

    fn paid(&self, model: &str) -> Paid {
        let tokens = TOKEN_KINDS.map(|kind| {
            let model = model.to_owned();
            self.tokens.get_or_create_owned(&Tokens { model, kind })
        });
        let charged = self.charged.get_or_create_owned(&Model::named(model));
        Paid { tokens, charged }
    }

    /// Everything, as a scraper reads it.
    pub fn text(&self, ledger: &Health, now: &Snapshot) -> String {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.holds.set(count(now.holds));
        self.held.set(now.held_nanos);
        self.abandoned.set(count(now.abandoned));
        self.spooled.set(count(now.spooled));
        self.violations.set(count(now.violations));
        self.waiting.set(count(ledger.waiting()));
        self.ledger_ready.set(i64::from(ledger.takes_charges()));
        self.limits_ready.set(i64::from(now.limits_ready));
        for kind in backoffice::AlertKind::ALL {
            let open = now.alerts.get(&kind).copied().unwrap_or(0);
            let kind = kind.as_str();
            self.alerts.get_or_create(&AlertKind { kind }).set(open);
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
