//! `tollgate serve`: runs a gateway from a configuration file until a signal stops it.

use std::path::Path;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    cli::logging,
    server::{self, ConfigFiles, Running, UnreadableChanges},
};

pub(crate) async fn run(file: &Path, without_changes: bool) -> Result<(), String> {
    let mut files = ConfigFiles::new(file);
    let config = files.load()?;
    logging::start(&config.log);
    let signals = StopSignals::listen()?;
    let unreadable = if without_changes {
        UnreadableChanges::ServeFile
    } else {
        UnreadableChanges::Fail
    };
    let running = server::start_with(config, unreadable)
        .await
        .map_err(|error| error.to_string())?;
    running.reload_from(files);
    tracing::info!(
        public = %running.public,
        operator = %running.operator,
        "tollgate {} is ready at {}", env!("CARGO_PKG_VERSION"), running.origin,
    );
    until_stopped(running, signals).await
}

/// Receiver of SIGTERM and SIGINT. Create it before the gateway reports that it is ready, so that no signal is missed.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn listen() -> Result<Self, String> {
        let listen =
            |kind| signal(kind).map_err(|error| format!("signals cannot be received: {error}"));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Serves until a signal arrives, then shuts down gracefully; a second signal stops at once. Fails if responses were
/// cut off or charges still wait in the spool.
pub(crate) async fn until_stopped(
    running: Running,
    mut signals: StopSignals,
) -> Result<(), String> {
    signals.next().await;
    let spool = running.gateway.spool.clone();
    // Logged only after the gateway refuses new work: a reader of the log line may test that immediately.
    running.begin_to_stop();
    tracing::info!(
        "stopping: no new work is accepted; running responses may finish (a second signal cuts them off)"
    );
    tokio::select! {
        () = running.stop() => {}
        () = signals.next() => {
            let cut = "stopped by a second signal; running responses were cut off";
            let left = spool.left_behind().await;
            return Err(left.map_or(cut.to_owned(), |left| format!("{cut}; {left}")));
        }
    }
    tracing::info!("stopped");
    // Charges left in the spool make the exit code 1, so that a process supervisor reports them.
    spool.left_behind().await.map_or(Ok(()), Err)
}
