//! Putting the last minute back into a server that may have forgotten it.
//!
//! A partition in doubt admits nothing. The doubt is named first and the ledger is asked after
//! that, so what comes back is everything that was ever admitted; if the server forgets again in
//! between, it forgets the name too, and it all begins anew.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use rand::random;
use tokio::time::{sleep, timeout};

use super::{
    super::StoredReservation,
    Inner,
    link::Link,
    script::{Answer, Minute, PARTITIONS, Run, entry, partition},
};

const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const LEDGER_WITHIN: Duration = Duration::from_secs(5);

impl Inner {
    /// Returns once every partition has all of its entries. Those whose clock was set have them put back by age.
    pub async fn make_sound(&self, link: &Link, clock_was_set: &[u64]) -> Result<(), String> {
        let doubts = self.doubts(link, clock_was_set).await?;
        if doubts.is_empty() {
            return Ok(());
        }
        self.link.send_modify(|link| {
            *link = Err("the last minute is being put back from the ledger".to_owned());
        });
        sleep(self.known_within).await;
        let kept = timeout(LEDGER_WITHIN, (self.rebuild)())
            .await
            .unwrap_or_else(|_| Err("no answer in time".to_owned()))
            .map_err(|error| format!("the ledger cannot tell the last minute: {error}"))?;
        let places = kept.len();
        let runs = restores(&doubts, kept);
        ask(link, runs.iter()).await?;
        if self.doubts(link, &[]).await?.is_empty() {
            let partitions = doubts.len();
            tracing::info!(places, partitions, "the last minute is in Redis again");
            return Ok(());
        }
        Err("it forgot the last minute while that was being put back".to_owned())
    }

    /// The partitions that are in doubt, and the names of the doubts.
    async fn doubts(
        &self,
        link: &Link,
        clock_was_set: &[u64],
    ) -> Result<BTreeMap<u64, String>, String> {
        let name = random();
        let runs = (0..PARTITIONS).map(|at| {
            if clock_was_set.contains(&at) {
                Run::doubt_clock(at, name)
            } else {
                Run::doubt(at, name)
            }
        });
        let runs: Vec<_> = runs.collect();
        let answers = ask(link, runs.iter()).await?;
        let doubts = (0..).zip(answers).filter_map(|(at, answer)| match answer {
            Answer::Doubtful(name) => Some((at, name)),
            _ => None,
        });
        Ok(doubts.collect())
    }
}

async fn ask(link: &Link, runs: impl Iterator<Item = &Run>) -> Result<Vec<Answer>, String> {
    let answers = timeout(ANSWER_WITHIN, join_all(runs.map(|run| run.ask(link)))).await;
    let answers = answers.map_err(|_| "no answer in time".to_owned())?;
    let answers: Result<_, _> = answers.into_iter().collect();
    answers.map_err(|error: redis::RedisError| error.to_string())
}

/// One run for each partition in doubt, those without a place in the last minute included.
fn restores(doubts: &BTreeMap<u64, String>, kept: Vec<StoredReservation>) -> Vec<Run> {
    let mut windows: BTreeMap<u64, BTreeMap<(String, String), Vec<_>>> = BTreeMap::new();
    for place in kept {
        let windows = windows.entry(partition(&place.account)).or_default();
        let window = (place.account.clone(), place.model.clone());
        windows.entry(window).or_default().push(place);
    }
    let restore = |(partition, doubt): (&u64, &String)| {
        let mut run = Run::restore(*partition, doubt);
        for ((account, model), places) in windows.remove(partition).unwrap_or_default() {
            run.window(Minute::of(&account, &model));
            for place in places {
                run.entry(entry(place.call, place.step), &place);
            }
        }
        run
    };
    doubts.iter().map(restore).collect()
}
