//! `tollgate serve`: production.

use std::path::Path;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    cli::telemetry,
    server::{self, ConfigFiles, Running},
};

pub async fn run(file: &Path) -> Result<(), String> {
    let mut files = ConfigFiles::new(file);
    let config = files.load()?;
    telemetry::start(&config.log);
    let signals = StopSignals::listen()?;
    let running = server::start(config)
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

/// What asks the process to stop, from the moment this is made: before it says that it is ready.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub fn listen() -> Result<Self, String> {
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

/// Serves until the process is asked to stop, then stops in good order.
pub async fn until_stopped(running: Running, mut signals: StopSignals) -> Result<(), String> {
    signals.next().await;
    let spool = running.gateway.spool.clone();
    // Said once it is so: who reads it may ask at once, and is to be told that there is none.
    running.begin_to_stop();
    tracing::info!("stopping: no new work; running answers may finish (a second signal cuts them)");
    tokio::select! {
        () = running.stop() => {}
        () = signals.next() => {
            let cut = "stopped at once; running answers were cut";
            let left = spool.left_behind().await;
            return Err(left.map_or(cut.to_owned(), |left| format!("{cut}; {left}")));
        }
    }
    tracing::info!("stopped");
    // Not in good order while something waits: whoever watches over the process is to know.
    spool.left_behind().await.map_or(Ok(()), Err)
}
