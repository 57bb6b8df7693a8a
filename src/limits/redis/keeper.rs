//! Background task that keeps a usable connection for as long as the limiter exists.
//!
//! While the server cannot be used, the limiter's `link` has the reason, operations fail at once, and the task
//! reconnects until all checks pass and the windows are complete.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Inner, link::Link, script::Reply};

/// Pause before the next attempt to connect.
const RETRY_AFTER: Duration = Duration::from_millis(150);
/// How often a connection is checked without a reason.
const CHECK_EVERY: Duration = Duration::from_secs(2);
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) async fn keep(inner: Arc<Inner>) {
    let mut keeper = Keeper {
        inner: &inner,
        last_logged: None,
        clocks_agree: true,
        jump_logged: false,
    };
    loop {
        match keeper.connect().await {
            Ok(link) => keeper.watch(&link).await,
            Err(why) => {
                keeper.log_failure(&why);
                inner.link.send_modify(|link| *link = Err(why));
                sleep(RETRY_AFTER).await;
            }
        }
    }
}

struct Keeper<'a> {
    inner: &'a Inner,
    /// The failure that was logged last; it is not logged again while it repeats.
    last_logged: Option<String>,
    clocks_agree: bool,
    /// Whether a jump of the server's clock was logged whose partitions are not restored yet.
    jump_logged: bool,
}

impl Keeper<'_> {
    /// Connects, checks the server and its clock, and restores windows that may have lost entries.
    async fn connect(&mut self) -> Result<Link, String> {
        let link = Link::to(&self.inner.address).await?;
        link.inspect(REPLY_TIMEOUT).await?;
        link.probe_write(REPLY_TIMEOUT).await?;
        self.compare_clocks(&link).await;
        let clocks = self.inner.clocks.read(&link).await?;
        if !clocks.jumped.is_empty() && !std::mem::replace(&mut self.jump_logged, true) {
            self.inner.clocks.jumps.inc();
            tracing::error!(
                address = %self.inner.address,
                jump_ms = clocks.jump_ms,
                "the clock of Redis jumped by this many milliseconds, or this machine was suspended; requests are \
                refused until the windows are restored by the age of their calls; check the time of the server"
            );
        }
        self.inner.restore_partitions(&link, &clocks.jumped).await?;
        self.inner.clocks.accept(clocks);
        self.jump_logged = false;
        Ok(link)
    }

    /// Publishes the connection and checks it regularly. Returns when it can no longer be used.
    async fn watch(&mut self, link: &Link) {
        let mut check_requests = self.inner.check_requests.subscribe();
        self.last_logged = None;
        self.inner.link.send_modify(|open| *open = Ok(link.clone()));
        tracing::info!(address = %self.inner.address, "connected to Redis for rate limits; requests are admitted");
        loop {
            let was_requested = timeout(CHECK_EVERY, check_requests.changed()).await.is_ok();
            let why = self.inner.link.borrow().as_ref().err().cloned();
            if let Some(why) = why {
                self.log_failure(&why);
                return;
            }
            // A check was requested after an operation timed out: the server must reply as fast as an operation needs.
            // No request waits for a regular check.
            let reply_timeout = if was_requested {
                2 * self.inner.deadline
            } else {
                REPLY_TIMEOUT.max(2 * self.inner.deadline)
            };
            if let Err(why) = link.inspect(reply_timeout).await {
                self.log_failure(&why);
                self.inner.close_link(&why);
                return;
            }
            if was_requested {
                continue;
            }
            self.compare_clocks(link).await;
            match self.inner.clocks.read(link).await {
                Ok(clocks) if clocks.jumped.is_empty() => self.inner.clocks.accept(clocks),
                // There may have been no operation since the jump: restore before the next one.
                Ok(_) => {
                    self.inner.close_link(Reply::ClockJumped.reason());
                    return;
                }
                Err(_) => {}
            }
        }
    }

    fn log_failure(&mut self, why: &str) {
        if self.last_logged.as_deref() != Some(why) {
            tracing::warn!(
                address = %self.inner.address,
                "Redis cannot be used for rate limits: {why}; requests are refused while reconnecting"
            );
            self.last_logged = Some(why.to_owned());
        }
    }

    /// Logs a warning when the server's clock and this machine's begin to differ.
    async fn compare_clocks(&mut self, link: &Link) {
        let apart = link.clocks_apart().await;
        if let Some(apart_ms) = apart.filter(|_| self.clocks_agree) {
            tracing::warn!(
                apart_ms,
                "the clock of Redis differs from this machine's by {apart_ms} ms"
            );
        }
        self.clocks_agree = apart.is_none();
    }
}
