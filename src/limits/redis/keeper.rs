//! Keeps a connection that can be used, for as long as the limiter is there.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Inner, link::Link, script::Answer};

/// How soon a server that was away is tried again.
const TRY_EVERY: Duration = Duration::from_millis(150);
/// How often a connection is looked at though nothing is wrong with it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

pub(super) async fn keep(inner: Arc<Inner>) {
    let mut keeper = Keeper {
        inner: &inner,
        said: None,
        clocks_agree: true,
        noted_jump: false,
    };
    loop {
        match keeper.connect().await {
            Ok(link) => keeper.watch(&link).await,
            Err(why) => {
                keeper.report(&why);
                inner.link.send_modify(|link| *link = Err(why));
                sleep(TRY_EVERY).await;
            }
        }
    }
}

struct Keeper<'a> {
    inner: &'a Inner,
    /// The trouble that was logged last; the same is not worth a second line.
    said: Option<String>,
    clocks_agree: bool,
    /// A jump of the server's clock was logged, and what it made doubtful is not put right yet.
    noted_jump: bool,
}

impl Keeper<'_> {
    async fn connect(&mut self) -> Result<Link, String> {
        let link = Link::to(&self.inner.address).await?;
        link.inspect(ANSWER_WITHIN).await?;
        link.write(ANSWER_WITHIN).await?;
        self.compare_clocks(&link).await;
        let clocks = self.inner.clocks.look(&link).await?;
        if !clocks.set.is_empty() && !std::mem::replace(&mut self.noted_jump, true) {
            self.inner.clocks.jumps.inc();
            tracing::error!(
                address = %self.inner.address,
                jump_ms = clocks.by_ms,
                "the clock of Redis was set by this many milliseconds, or this machine was suspended: nothing is \
                admitted until the last minute is put back by the age of its calls; check the time of the server"
            );
        }
        self.inner.make_sound(&link, &clocks.set).await?;
        self.inner.clocks.go_by(clocks);
        self.noted_jump = false;
        Ok(link)
    }

    /// Returns when the connection is of no use any more.
    async fn watch(&mut self, link: &Link) {
        let mut alarms = self.inner.alarms.subscribe();
        self.said = None;
        self.inner.link.send_modify(|open| *open = Ok(link.clone()));
        tracing::info!(address = %self.inner.address, "limits are kept in Redis");
        loop {
            let alarmed = timeout(LOOK_EVERY, alarms.changed()).await.is_ok();
            let why = self.inner.link.borrow().as_ref().err().cloned();
            if let Some(why) = why {
                self.report(&why);
                return;
            }
            // After an alarm the answer has to come as soon as that of a step; otherwise nobody
            // is waiting for it.
            let within = if alarmed {
                2 * self.inner.deadline
            } else {
                ANSWER_WITHIN.max(2 * self.inner.deadline)
            };
            if let Err(why) = link.inspect(within).await {
                self.report(&why);
                self.inner.withdraw(&why);
                return;
            }
            if alarmed {
                continue;
            }
            self.compare_clocks(link).await;
            match self.inner.clocks.look(link).await {
                Ok(clocks) if clocks.set.is_empty() => self.inner.clocks.go_by(clocks),
                // Nobody may have asked since: then it is put right before anybody does.
                Ok(_) => {
                    self.inner.withdraw(Answer::ClockWasSet.reason());
                    return;
                }
                Err(_) => {}
            }
        }
    }

    fn report(&mut self, why: &str) {
        if self.said.as_deref() != Some(why) {
            tracing::warn!(address = %self.inner.address, "Redis cannot be used for limits: {why}");
            self.said = Some(why.to_owned());
        }
    }

    async fn compare_clocks(&mut self, link: &Link) {
        let apart = link.clocks_apart().await;
        if let Some(apart_ms) = apart.filter(|_| self.clocks_agree) {
            tracing::warn!(apart_ms, "the clock of Redis and this machine's differ");
        }
        self.clocks_agree = apart.is_none();
    }
}
