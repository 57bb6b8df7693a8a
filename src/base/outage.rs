//! The log of something that is tried again until it works: one line when it begins to fail, and one that sums up when it
//! works again.

use std::{borrow::Cow, fmt::Display, time::Instant};

pub(crate) struct Outage {
    what: Cow<'static, str>,
    failing: Option<Failing>,
}

struct Failing {
    since: Instant,
    attempts: u64,
}

impl Outage {
    /// `what` is tried, as the beginning of a sentence: "looking up keys".
    pub(crate) fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            what: what.into(),
            failing: None,
        }
    }

    pub(crate) fn log(&mut self, result: &Result<(), impl Display>) {
        match result {
            Ok(()) => self.works(),
            Err(error) => self.fails(error),
        }
    }

    pub(crate) fn fails(&mut self, error: &impl Display) {
        let what = &self.what;
        let failing = self.failing.get_or_insert_with(|| {
            tracing::warn!(%error, "{what} failed; it is retried until it works");
            let since = Instant::now();
            Failing { since, attempts: 0 }
        });
        failing.attempts += 1;
    }

    pub(crate) fn works(&mut self) {
        if let Some(Failing { since, attempts }) = self.failing.take() {
            let (what, seconds) = (&self.what, since.elapsed().as_secs());
            tracing::info!(attempts, seconds, "{what} works again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_outage_is_a_line_at_each_end() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let mut outage = Outage::new("looking");
            outage.works();
            for _ in 0..50 {
                outage.fails(&"dark");
            }
            outage.works();
            outage.works();
        });
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = log.lines().collect();
        assert_eq!(lines.len(), 2, "{log}");
        assert!(
            lines[0].contains("looking failed") && lines[0].contains("dark"),
            "{log}"
        );
        assert!(
            lines[1].contains("looking works again") && lines[1].contains("attempts=50"),
            "{log}"
        );
    }
}
