//! Logs when storage starts to fail and when it works again, once per change.

use std::{
    fmt::Display,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

#[derive(Default)]
pub(crate) struct Health {
    failing: AtomicBool,
}

impl Health {
    pub(crate) fn report_failure(&self, error: &dyn Display) {
        if !self.failing.swap(true, Relaxed) {
            tracing::error!(
                %error,
                "response storage failed; retrying at each use",
            );
        }
    }

    pub(crate) fn report_success(&self) {
        if self.failing.swap(false, Relaxed) {
            tracing::info!("response storage works again");
        }
    }

    #[cfg(test)]
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_change_is_logged_once() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let health = Health::default();
            health.report_success();
            for _ in 0..2 {
                for _ in 0..3 {
                    health.report_failure(&"the disk is full");
                }
                for _ in 0..3 {
                    health.report_success();
                }
            }
        });
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.lines().count(), 4, "{log}");
        assert_eq!(log.matches("the disk is full").count(), 2, "{log}");
    }
}
