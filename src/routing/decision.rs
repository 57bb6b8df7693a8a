//! The record of a choice and its reasons. It is stored with the request and shown to the operator.

use serde::{Serialize, Serializer};

use super::{
    candidate::Candidate,
    scorer::{Contribution, DOMAINS, Scores},
};
use crate::base::money::NanoUsd;

/// Why a target was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reason {
    CostOk,
    CostOnlyFit,
    TierScore,
    TierFloorTools,
    TierFloorContext,
    TierEscalated5xx,
    TierEscalatedTimeout,
    TierEscalatedEmpty,
    TierEscalatedNotJson,
    SemExemplar,
    SemDomain,
    SemDefault,
    TurnFirst,
    TurnLockTool,
    TurnStayCache,
    TurnSwitchGain,
    TurnContinuation,
    TurnIdleReset,
    /// The circuits of all suitable targets are open and one is used anyway; or the target of the conversation's last
    /// turn is no longer available.
    FallbackHealth,
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::CostOk => "COST_OK",
            Self::CostOnlyFit => "COST_ONLY_FIT",
            Self::TierScore => "TIER_SCORE",
            Self::TierFloorTools => "TIER_FLOOR_TOOLS",
            Self::TierFloorContext => "TIER_FLOOR_CONTEXT",
            Self::TierEscalated5xx => "TIER_ESCALATED_5XX",
            Self::TierEscalatedTimeout => "TIER_ESCALATED_TIMEOUT",
            Self::TierEscalatedEmpty => "TIER_ESCALATED_EMPTY",
            Self::TierEscalatedNotJson => "TIER_ESCALATED_NOT_JSON",
            Self::SemExemplar => "SEM_EXEMPLAR",
            Self::SemDomain => "SEM_DOMAIN",
            Self::SemDefault => "SEM_DEFAULT",
            Self::TurnFirst => "TURN_FIRST",
            Self::TurnLockTool => "TURN_LOCK_TOOL",
            Self::TurnStayCache => "TURN_STAY_CACHE",
            Self::TurnSwitchGain => "TURN_SWITCH_GAIN",
            Self::TurnContinuation => "TURN_CONTINUATION",
            Self::TurnIdleReset => "TURN_IDLE_RESET",
            Self::FallbackHealth => "FALLBACK_HEALTH",
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// All data about one choice.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decision {
    pub hybrid: String,
    pub router: &'static str,
    /// Version of the weights that scored the request.
    pub version: String,
    /// The chosen target, or the last one after escalations.
    pub chosen: String,
    pub reason: Reason,
    /// The tier that a `tiered` router put the request in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<u8>,
    /// The route that a `semantic` router found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Expected quality of each quality tier, the weakest first.
    #[serde(serialize_with = "all_short")]
    pub quality: [f32; 4],
    /// Whether the scores are those of the previous turn, because this turn is a short continuation.
    #[serde(skip)]
    pub is_inherited: bool,
    pub domain: Domain,
    pub prompt_tokens: u64,
    pub candidates: Vec<ConsideredCandidate>,
    pub estimated_cost: NanoUsd,
    /// Estimated cost of the most expensive eligible target.
    pub dearest_cost: NanoUsd,
    /// `dearest_cost` less `estimated_cost`.
    pub estimated_saving: NanoUsd,
    /// Changes of target after failures, in order.
    pub escalations: Vec<Escalation>,
    /// How long the choice took, in microseconds.
    pub route_us: u64,
}

/// The most likely domain of a request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Domain {
    pub name: &'static str,
    #[serde(serialize_with = "short")]
    pub posterior: f32,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConsideredCandidate {
    pub model: String,
    pub quality_tier: u8,
    #[serde(serialize_with = "short")]
    pub quality: f32,
    pub estimated_cost: NanoUsd,
    pub rejected: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Escalation {
    pub from: String,
    pub to: String,
    pub reason: Reason,
}

/// A term of the quality scores.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Term {
    /// A word or two of the prompt in quotes, the name of a feature, or `meaning`.
    term: String,
    /// What it adds to the expected quality of each tier, the weakest first.
    #[serde(serialize_with = "all_short")]
    quality: [f32; 4],
}

impl From<Contribution> for Term {
    fn from(one: Contribution) -> Self {
        Self {
            term: one.term,
            quality: one.quality,
        }
    }
}

/// Rounds to four decimal places, so that stored JSON is parsed to the same number.
fn rounded(number: f32) -> f64 {
    (f64::from(number) * 10_000.0).round() / 10_000.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn short<S: Serializer>(number: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rounded(*number))
}

fn all_short<S: Serializer>(numbers: &[f32; 4], serializer: S) -> Result<S::Ok, S::Error> {
    numbers.map(rounded).serialize(serializer)
}

/// The expected saving over the most expensive target.
pub(crate) fn saving(estimated: NanoUsd, dearest: NanoUsd) -> NanoUsd {
    NanoUsd::new(dearest.nanos() - estimated.nanos())
}

impl Domain {
    pub(crate) fn of(scores: &Scores) -> Self {
        let mut likeliest = Self {
            name: DOMAINS[0],
            posterior: scores.domains[0],
        };
        for (name, posterior) in DOMAINS.into_iter().zip(scores.domains) {
            // Of equal domains the first is taken.
            if posterior > likeliest.posterior {
                likeliest = Self { name, posterior };
            }
        }
        likeliest
    }
}

impl ConsideredCandidate {
    pub(crate) fn of(candidate: &Candidate, quality: &[f32; 4]) -> Self {
        Self {
            model: candidate.model.id.clone(),
            quality_tier: candidate.tier(),
            quality: candidate.quality(quality),
            estimated_cost: candidate.cost,
            rejected: candidate.rejected.map(super::Rejection::as_str),
        }
    }
}

impl Decision {
    /// Records that the chosen target failed and `to` replaces it.
    pub(crate) fn escalates(&mut self, to: &str, reason: Reason) {
        let from = std::mem::replace(&mut self.chosen, to.to_owned());
        self.escalations.push(Escalation {
            from,
            to: to.to_owned(),
            reason,
        });
        self.reason = reason;
        let mut candidates = self.candidates.iter();
        let cost = candidates.find(|one| one.model == to);
        self.estimated_cost = cost.map_or(self.estimated_cost, |one| one.estimated_cost);
        self.estimated_saving = saving(self.estimated_cost, self.dearest_cost);
    }
}
