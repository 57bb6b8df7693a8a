//! What the operator has set: where to send what, how often, and for which requests.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Uri};

#[derive(Clone, Debug)]
pub struct Settings {
    /// Where traces go; `None`: nowhere.
    pub traces: Option<Target>,
    pub metrics: Option<Target>,
    /// What is said of this program.
    pub resource: Vec<(String, String)>,
    pub sampler: Sampler,
    /// How long spans wait for others to be sent with them.
    pub batch_delay: Duration,
    pub metrics_interval: Duration,
    /// Whether spans have the prompts and the answers.
    pub records_messages: bool,
    /// Whether traces go on from clients and to providers.
    pub propagates: bool,
}

/// Where one kind of data is sent.
#[derive(Clone, Debug)]
pub struct Target {
    pub url: Uri,
    /// Headers of every request to the collector. They may have secrets, so their values are marked as sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Of one attempt.
    pub timeout: Duration,
}

/// Which requests are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// The share of traces that are recorded, of those that begin here.
    pub share: f64,
    /// Whether a client decides for the traces that it has begun.
    pub follows_parent: bool,
}

impl Sampler {
    /// Whether a trace is recorded. By the end of its ID, so that all gateways choose the same traces.
    pub(crate) fn records(&self, trace: u128, parent_is_sampled: Option<bool>) -> bool {
        if let Some(is_sampled) = parent_is_sampled.filter(|_| self.follows_parent) {
            return is_sampled;
        }
        let low = u32::try_from(trace & u128::from(u32::MAX)).unwrap_or(u32::MAX);
        f64::from(low) / (f64::from(u32::MAX) + 1.0) < self.share
    }
}

#[cfg(test)]
mod tests {
    use super::Sampler;

    #[test]
    fn a_share_of_all_traces_is_recorded() {
        let recorded = |share| {
            let sampler = Sampler {
                share,
                follows_parent: true,
            };
            let traces = (0..1000_u128).map(|number| number * (1 << 32) / 1000);
            traces.filter(|id| sampler.records(*id, None)).count()
        };
        assert_eq!(
            [recorded(0.0), recorded(0.25), recorded(1.0)],
            [0, 250, 1000]
        );
    }

    #[test]
    fn a_client_decides_for_its_traces_if_it_may() {
        let never = |follows_parent| Sampler {
            share: 0.0,
            follows_parent,
        };
        assert!(never(true).records(7, Some(true)));
        assert!(!never(false).records(7, Some(true)));
    }
}
