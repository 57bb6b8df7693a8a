//! One step: asked within a deadline, once more if need be, and never left half known.

use std::time::Duration;

use tokio::time::timeout;

use super::{Answer, Inner, Link, Run, Word};

/// The server could not be asked, or nothing was heard of it.
#[derive(Debug)]
pub struct Silence;

/// Said of an entry when whoever asked for it goes away, or gives up, before the answer is there.
pub struct Unless<'a> {
    inner: &'a Inner,
    word: Option<Word>,
}

impl<'a> Unless<'a> {
    pub fn heard(inner: &'a Inner, word: Word) -> Self {
        Self {
            inner,
            word: Some(word),
        }
    }

    pub fn was_heard(mut self) {
        self.word = None;
    }
}

impl Drop for Unless<'_> {
    fn drop(&mut self) {
        if let Some(word) = self.word.take() {
            self.inner.say(word);
        }
    }
}

impl Inner {
    /// The answer, and how many tries it took. `unheard` is said if there is none.
    pub async fn step(&self, run: &Run, unheard: Word) -> Result<(Answer, u32), Silence> {
        let _room = self.room.try_acquire().map_err(|_| Silence)?;
        let mut link = self.link.borrow().clone().map_err(|_| Silence)?;
        let unless = Unless::heard(self, unheard);
        for tries in 1..=2 {
            let times = self.clocks.now_within(run.partition, self.deadline);
            match timeout(self.deadline, run.ask_within(&link, times)).await {
                Ok(Ok(not_done @ (Answer::Unmarked | Answer::ClockWasSet))) => {
                    self.withdraw(not_done.reason());
                    if tries == 1 {
                        unless.was_heard();
                    }
                    return Err(Silence);
                }
                Ok(Ok(answer)) => {
                    unless.was_heard();
                    return Ok((answer, tries));
                }
                Ok(Err(error)) => self.withdraw(&error.to_string()),
                Err(_) => self.alarm(),
            }
            if tries == 1 {
                link = self.next_link(self.deadline).await.ok_or(Silence)?;
            }
        }
        Err(Silence)
    }

    /// The connection, or the one that takes its place in time.
    pub async fn next_link(&self, within: Duration) -> Option<Link> {
        let mut links = self.link.subscribe();
        let open = timeout(within, links.wait_for(Result::is_ok)).await;
        open.ok()?.ok()?.clone().ok()
    }

    /// No step is tried until the connection has been made anew and looked at.
    pub fn withdraw(&self, why: &str) {
        self.link.send_if_modified(|link| {
            let was_open = link.is_ok();
            if was_open {
                *link = Err(why.to_owned());
            }
            was_open
        });
        self.alarm();
    }

    /// Has the connection looked at.
    pub fn alarm(&self) {
        self.alarms.send_modify(|count| *count += 1);
    }
}
