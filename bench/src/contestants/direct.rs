//! No gateway in between: the baseline for latencies.

use std::time::Duration;

use super::Contestant;
use crate::{Done, chat::Api, load::Target, upstream::Upstream};

pub struct Direct {
    target: Target,
}

impl Direct {
    pub fn new(upstream: &Upstream) -> Self {
        let target = Target {
            port: upstream.port,
            api: Api::Chat,
            path: "/v1/chat/completions".into(),
            model: "model".into(),
            callers: vec!["authorization: Bearer sk-bench\r\n".into()],
        };
        Self { target }
    }
}

impl Contestant for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn pid(&self) -> Option<u32> {
        None
    }

    fn restart(&mut self) -> Done<Duration> {
        Ok(Duration::ZERO)
    }

    fn size(&self) -> u64 {
        0
    }

    fn version(&self) -> String {
        "the upstream itself".into()
    }
}
