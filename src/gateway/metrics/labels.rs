//! Labels of the metrics that count events.

use prometheus_client::encoding::EncodeLabelSet;

use crate::base::version::{COMMIT, VERSION};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BuildLabels {
    pub version: &'static str,
    /// Empty if it is not known.
    pub commit: &'static str,
}

impl BuildLabels {
    pub(super) const OURS: Self = Self {
        version: VERSION,
        commit: match COMMIT {
            Some(commit) => commit,
            None => "",
        },
    };
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub route: String,
    pub status: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RouteLabel {
    pub route: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ModelLabel {
    pub model: String,
}

impl ModelLabel {
    pub(super) fn named(model: &str) -> Self {
        let model = model.to_owned();
        Self { model }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CallLabels {
    pub model: String,
    pub upstream: String,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TokenLabels {
    pub model: String,
    pub kind: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AttemptLabels {
    pub upstream: String,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct UpstreamLabel {
    pub upstream: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BudgetLabel {
    pub scope: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReplayLabel {
    pub kind: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ToolLabels {
    pub tool: String,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct HybridLabels {
    pub hybrid: String,
    pub model: String,
    pub reason: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CodeLabel {
    pub code: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DeliveryLabels {
    pub channel: &'static str,
    pub outcome: &'static str,
}
