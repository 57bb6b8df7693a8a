//! Gauges of the gateway's state, which are set when the metrics are scraped.

use std::{collections::BTreeMap, sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use crate::{backoffice, gateway::Gateway, ledger::Health, net::lag::Lag};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BlockedLabel {
    by: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlertLabel {
    kind: &'static str,
}

/// Values that are read when the metrics are scraped.
pub(crate) struct Snapshot {
    pub holds: usize,
    pub held_nanos: i64,
    /// Calls that continue after their clients have disconnected.
    pub abandoned: usize,
    /// Bytes reserved for request bodies, and the most that can be.
    pub body_memory: (usize, usize),
    /// Bytes of responses in memory, for retries.
    pub recorded: usize,
    /// Accounts, and networks of clients, that were refused too often.
    pub blocked: (usize, usize),
    /// Charges in the spool.
    pub spooled: usize,
    /// Calls that are being admitted, and calls that wait for it, with shared stores.
    pub admissions: (usize, usize),
    /// The longest lag of a serving thread.
    pub lag: Duration,
    pub violations: usize,
    pub limits_ready: bool,
    /// Number of open alerts of each kind.
    pub alerts: BTreeMap<backoffice::AlertKind, i64>,
    /// Budgets of which nothing is left.
    pub used_up_budgets: usize,
    /// The version of the configuration in use, and whether a newer one cannot be used here.
    pub config: (i64, bool),
}

impl Snapshot {
    pub(crate) fn of(gateway: &Gateway) -> Self {
        let (holds, held) = gateway.ledger.all_held();
        let lags = gateway.lags.get().into_iter().flatten().map(Lag::get);
        Self {
            holds,
            held_nanos: held.nanos(),
            abandoned: gateway.abandoned.total(),
            body_memory: (gateway.body_memory.reserved(), gateway.body_memory.limit()),
            recorded: gateway.retries.recorded_bytes(),
            blocked: gateway.refusals.waiting(),
            spooled: gateway.spool.waiting().0,
            admissions: (gateway.admissions.as_ref()).map_or((0, 0), |all| all.counts()),
            lag: lags.max().unwrap_or_default(),
            violations: gateway.ledger.violations(),
            limits_ready: gateway.limiter.is_ready(),
            alerts: gateway.alerts.open_counts(),
            used_up_budgets: gateway.alerts.used_up_budgets(),
            config: (
                gateway.routes_now().revision.number,
                gateway.configuration.problem().is_some(),
            ),
        }
    }
}

#[derive(Default)]
pub(super) struct Gauges {
    holds: Gauge,
    held: Gauge,
    abandoned: Gauge,
    body_memory: Gauge,
    body_memory_limit: Gauge,
    recorded: Gauge,
    blocked: Family<BlockedLabel, Gauge>,
    waiting: Gauge,
    admissions_running: Gauge,
    admissions_waiting: Gauge,
    lane_lag: Gauge<f64, AtomicU64>,
    spooled: Gauge,
    ledger_ready: Gauge,
    limits_ready: Gauge,
    violations: Gauge,
    alerts: Family<AlertLabel, Gauge>,
    used_up_budgets: Gauge,
    config_version: Gauge,
    config_rejected: Gauge,
}

impl Gauges {
    pub(super) fn register(&self, registry: &mut Registry) {
        let nanos = Unit::Other("nano_usd".into());
        registry.register("holds", "Running calls with a hold", self.holds.clone());
        registry.register_with_unit("held", "Credit reserved by holds", nanos, self.held.clone());
        registry.register(
            "abandoned_calls",
            "Calls that are read to their end after their clients have disconnected",
            self.abandoned.clone(),
        );
        registry.register_with_unit(
            "body_memory",
            "Memory reserved for request bodies and the calls made of them",
            Unit::Bytes,
            self.body_memory.clone(),
        );
        registry.register_with_unit(
            "body_memory_limit",
            "Most memory that can be reserved for request bodies",
            Unit::Bytes,
            self.body_memory_limit.clone(),
        );
        registry.register_with_unit(
            "retry_memory",
            "Memory of the responses of running calls, and of calls whose clients have left, for retries",
            Unit::Bytes,
            self.recorded.clone(),
        );
        registry.register(
            "blocked_clients",
            "Accounts and addresses that get 429 because too many of their requests were refused",
            self.blocked.clone(),
        );
        registry.register(
            "ledger_waiting",
            "Ledger changes that are not committed yet",
            self.waiting.clone(),
        );
        registry.register(
            "admissions_running",
            "Calls that are being admitted, with shared stores",
            self.admissions_running.clone(),
        );
        registry.register(
            "admissions_waiting",
            "Calls that wait to be admitted, with shared stores",
            self.admissions_waiting.clone(),
        );
        registry.register_with_unit(
            "lane_lag",
            "How late the tasks of the slowest serving thread run",
            Unit::Seconds,
            self.lane_lag.clone(),
        );
        registry.register(
            "spooled_charges",
            "Pending charges in the spool",
            self.spooled.clone(),
        );
        registry.register(
            "ledger_ready",
            "Whether charges can be written to the ledger: 1 or 0",
            self.ledger_ready.clone(),
        );
        registry.register(
            "limits_ready",
            "Whether the limiter can count requests: 1 or 0",
            self.limits_ready.clone(),
        );
        registry.register(
            "audit_violations",
            "Frozen accounts: their ledger entries did not add up at the last audit",
            self.violations.clone(),
        );
        registry.register("alerts_open", "Open alerts by kind", self.alerts.clone());
        registry.register(
            "budgets_used_up",
            "Budgets that are used up in their present periods, as of the last check for alerts",
            self.used_up_budgets.clone(),
        );
        registry.register(
            "config_version",
            "Version of the changes of the configuration in use; 0: the file alone",
            self.config_version.clone(),
        );
        registry.register(
            "config_rejected",
            "Whether a newer version of the configuration cannot be used here: 1 or 0",
            self.config_rejected.clone(),
        );
    }

    pub(super) fn set(&self, ledger: &Health, now: &Snapshot) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.holds.set(count(now.holds));
        self.held.set(now.held_nanos);
        self.abandoned.set(count(now.abandoned));
        self.body_memory.set(count(now.body_memory.0));
        self.body_memory_limit.set(count(now.body_memory.1));
        self.recorded.set(count(now.recorded));
        for (by, blocked) in [("account", now.blocked.0), ("address", now.blocked.1)] {
            let label = BlockedLabel { by };
            self.blocked.get_or_create(&label).set(count(blocked));
        }
        self.spooled.set(count(now.spooled));
        self.admissions_running.set(count(now.admissions.0));
        self.admissions_waiting.set(count(now.admissions.1));
        self.lane_lag.set(now.lag.as_secs_f64());
        self.violations.set(count(now.violations));
        self.waiting.set(count(ledger.waiting()));
        self.ledger_ready.set(i64::from(ledger.takes_charges()));
        self.limits_ready.set(i64::from(now.limits_ready));
        self.used_up_budgets.set(count(now.used_up_budgets));
        self.config_version.set(now.config.0);
        self.config_rejected.set(i64::from(now.config.1));
        for kind in backoffice::AlertKind::ALL {
            let open = now.alerts.get(&kind).copied().unwrap_or(0);
            let kind = kind.as_str();
            self.alerts.get_or_create(&AlertLabel { kind }).set(open);
        }
    }
}
