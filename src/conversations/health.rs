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
            health.works();
            for _ in 0..2 {
                for _ in 0..3 {
                    health.fails(&"the disk is full");
                }
                for _ in 0..3 {
                    health.works();
                }
            }
        });
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.lines().count(), 4, "{log}");
        assert_eq!(log.matches("the disk is full").count(), 2, "{log}");
    }
}
