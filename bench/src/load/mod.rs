//! The load generator. All of it runs on one thread, and each task has its own connection.

mod connection;
mod events;
pub mod excess;
pub mod plain;
pub mod slow;
pub mod stream;

use std::time::Duration;

use tokio::task::JoinSet;

use crate::{
    Done,
    chat::{self, Api, Speed},
};
pub use connection::Connection;

/// The address of a contestant and the callers to use.
#[derive(Clone, Debug)]
pub struct Target {
    pub port: u16,
    pub api: Api,
    pub path: String,
    pub model: String,
    /// Header lines of each caller, used in turn.
    pub callers: Vec<String>,
}

impl Target {
    /// The bytes of a request, for each caller.
    pub fn requests(&self, speed: Speed) -> Vec<Vec<u8>> {
        let body = chat::body(self.api, &self.model, speed);
        let (path, port, length) = (&self.path, self.port, body.len());
        let request = |caller: &String| {
            format!(
                "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{caller}accept: */*\r\n\
                 content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .into_bytes()
        };
        self.callers.iter().map(request).collect()
    }

    pub async fn connect(&self, connections: usize) -> Done<Vec<Connection>> {
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            open.push(Connection::open(self.port).await?);
        }
        Ok(open)
    }
}

/// The results of a measurement.
#[derive(Debug, Default)]
pub struct LoadResult {
    /// Complete responses with status 200; anything else ends the run.
    pub answers: u64,
    /// Events with contents, in streams.
    pub events: u64,
    pub took: Duration,
    /// Nanoseconds to the end of each response, or to the first event of each stream.
    pub waits: Vec<u64>,
    /// Nanoseconds between sending and arrival of each event, if measured.
    pub delays: Vec<u64>,
}

impl LoadResult {
    fn add(&mut self, other: Self) {
        self.answers += other.answers;
        self.events += other.events;
        self.waits.extend(other.waits);
        self.delays.extend(other.delays);
    }

    /// Sums the results of all tasks; the first failure ends the measurement.
    async fn of_all(mut tasks: JoinSet<Done<Self>>) -> Done<Self> {
        let mut all = Self::default();
        while let Some(done) = tasks.join_next().await {
            all.add(done??);
        }
        Ok(all)
    }
}

/// The percentile `share` of the nanoseconds, in milliseconds.
pub fn percentile(nanos: &mut [u64], share: f64) -> f64 {
    if nanos.is_empty() {
        return 0.0;
    }
    let at = ((nanos.len() - 1) as f64 * share).round() as usize;
    let (_, value, _) = nanos.select_nth_unstable(at);
    *value as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut nanos: Vec<u64> = (0..=100).rev().map(|n| n * 1_000_000).collect();
        assert!((percentile(&mut nanos, 0.5) - 50.0).abs() < 1e-9);
        assert!((percentile(&mut nanos, 0.99) - 99.0).abs() < 1e-9);
        assert!(percentile(&mut [], 0.5).abs() < 1e-9);
    }
}
