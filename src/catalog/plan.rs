//! Tracks and tiers, and which models they include (§3.3, §5).

use std::fmt;

use serde::{Deserialize, Serialize};

/// The tiers in ascending order; `Flex` exists on the business track only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    Free,
    Basic,
    Standard,
    Pro,
    Max,
    Flex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Track {
    Personal,
    Business,
}

impl Tier {
    pub(crate) const ALL: [Self; 6] = [
        Self::Free,
        Self::Basic,
        Self::Standard,
        Self::Pro,
        Self::Max,
        Self::Flex,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Basic => "basic",
            Self::Standard => "standard",
            Self::Pro => "pro",
            Self::Max => "max",
            Self::Flex => "flex",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.as_str() == text)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Track {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Personal => "personal",
            Self::Business => "business",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Personal, Self::Business]
            .into_iter()
            .find(|track| track.as_str() == text)
    }
}

/// The subscription of an account: a track, and a tier that exists on that track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    track: Track,
    tier: Tier,
}

impl Plan {
    /// Plan of requests without a key (§4.4).
    pub(crate) const ANONYMOUS: Self = Self {
        track: Track::Personal,
        tier: Tier::Free,
    };

    /// The plan that includes every model.
    pub(crate) const ALL: Self = Self {
        track: Track::Business,
        tier: Tier::Flex,
    };

    /// The plan, or `None` if the tier does not exist on the track: business has `flex` only, personal the others.
    pub(crate) fn new(track: Track, tier: Tier) -> Option<Self> {
        let on_track = (track == Track::Business) == (tier == Tier::Flex);
        on_track.then_some(Self { track, tier })
    }

    pub(crate) fn track(self) -> Track {
        self.track
    }

    pub(crate) fn tier(self) -> Tier {
        self.tier
    }

    /// Whether the plan includes models of tier `required`. Comparing tiers is enough, because `flex` is above every
    /// personal tier.
    pub(crate) fn includes(self, required: Tier) -> bool {
        self.tier >= required
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_includes_those_below_it_and_flex_includes_all() {
        let personal = |tier| Plan::new(Track::Personal, tier).unwrap();
        assert!(personal(Tier::Pro).includes(Tier::Standard));
        assert!(!personal(Tier::Pro).includes(Tier::Max));
        assert!(!personal(Tier::Max).includes(Tier::Flex));
        let business = Plan::new(Track::Business, Tier::Flex).unwrap();
        assert!(Tier::ALL.into_iter().all(|tier| business.includes(tier)));
    }

    #[test]
    fn tier_and_track_must_fit() {
        assert_eq!(Plan::new(Track::Personal, Tier::Flex), None);
        assert_eq!(Plan::new(Track::Business, Tier::Max), None);
    }
}
