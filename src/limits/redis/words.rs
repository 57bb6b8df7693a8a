//! What became of admissions, told to the server in the background.
//!
//! Nobody waits for it, so nobody is held up by a server that is away. What was said is told as
//! soon as it is back, or dropped after a minute, when the entry has left the window by itself.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{sleep, timeout},
};

use super::{
    Inner,
    link::Link,
    script::{Answer, Minute, Run},
};

/// How many words are under way together.
const TOGETHER: usize = 256;
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);
const WORTH_TELLING: Duration = Duration::from_mins(1);

pub struct Word {
    run: Run,
    said: Instant,
}

impl Word {
    pub fn settle(minute: &Minute, entry: &str, tokens: u64) -> Self {
        Self::new(Run::settle(minute, entry, tokens))
    }

    pub fn cancel(minute: &Minute, entry: &str) -> Self {
        Self::new(Run::cancel(minute, entry))
    }

    pub fn bury(minute: &Minute, entry: &str) -> Self {
        Self::new(Run::bury(minute, entry))
    }

    fn new(run: Run) -> Self {
        Self {
            run,
            said: Instant::now(),
        }
    }

    async fn tell(&self, inner: &Inner, link: &Link) -> bool {
        let times = inner.clocks.now_within(self.run.partition, ANSWER_WITHIN);
        match timeout(ANSWER_WITHIN, self.run.ask_within(link, times)).await {
            Ok(Ok(not_done @ (Answer::Unmarked | Answer::ClockWasSet))) => {
                inner.withdraw(not_done.reason());
                false
            }
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                inner.withdraw(&error.to_string());
                false
            }
            Err(_) => {
                inner.alarm();
                false
            }
        }
    }
}

/// Runs for as long as the limiter does.
pub(super) async fn tell(inner: Arc<Inner>, mut queue: UnboundedReceiver<Word>) {
    let mut backlog = VecDeque::new();
    loop {
        if backlog.is_empty() {
            match queue.recv().await {
                Some(word) => backlog.push_back(word),
                None => return,
            }
        }
        while let Ok(word) = queue.try_recv() {
            backlog.push_back(word);
        }
        let before = backlog.len();
        backlog.retain(|word| word.said.elapsed() < WORTH_TELLING);
        let mut all_told = true;
        if let Some(link) = inner.next_link(ANSWER_WITHIN).await {
            let now: Vec<Word> = backlog.drain(..backlog.len().min(TOGETHER)).collect();
            let told = join_all(now.iter().map(|word| word.tell(&inner, &link))).await;
            let untold: Vec<Word> = now
                .into_iter()
                .zip(told)
                .filter(|(_, told)| !told)
                .map(|(word, _)| word)
                .collect();
            all_told = untold.is_empty();
            // In front again: what was said first is told first.
            untold
                .into_iter()
                .rev()
                .for_each(|word| backlog.push_front(word));
        }
        let done = before - backlog.len();
        if done > 0 {
            inner.untold.send_modify(|count| *count -= done);
        }
        if !all_told {
            sleep(BETWEEN_TRIES).await;
        }
    }
}
