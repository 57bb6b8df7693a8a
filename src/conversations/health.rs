//! Whether storage works, said once when it changes.

use std::{
    fmt::Display,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

#[derive(Default)]
pub struct Health {
    failing: AtomicBool,
}

impl Health {
    pub fn fails(&self, error: &dyn Display) {
        if !self.failing.swap(true, Relaxed) {
            tracing::error!(
                %error,
                "responses cannot be stored or found at the moment; it is tried again at each use",
            );
        }
    }

    pub fn works(&self) {
        if self.failing.swap(false, Relaxed) {
            tracing::info!("responses can be stored and found again");
        }
    }

    #[cfg(test)]
    pub fn is_failing(&self) -> bool {
        self.failing.load(Relaxed)
    }
}
