//! Looks for what operators must hear of, and tells them.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    base::timestamp,
    gateway::{Gateway, alerts},
};

/// How often it is tried to tell what nobody has heard yet.
const TELLING_INTERVAL: Duration = Duration::from_secs(5);

/// Runs until the gateway is asked to stop. What was being told then is told again later, by this
/// gateway or another.
pub async fn run(gateway: Arc<Gateway>) {
    if !gateway.alerts.settings.enabled {
        return;
    }
    tokio::select! {
        () = look_and_tell(&gateway) => {}
        () = gateway.shutdown.requested() => {}
    }
}

async fn look_and_tell(gateway: &Gateway) {
    let mut looks = interval(gateway.alerts.settings.every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut looking, mut telling) = (Complaint::default(), Complaint::default());
    loop {
        let is_look = tokio::select! {
            _ = looks.tick() => true,
            () = gateway.alerts.wanted() => true,
            () = sleep(TELLING_INTERVAL) => false,
        };
        if is_look {
            let looked = alerts::look(gateway, timestamp::now()).await;
            looking.hear("alerts cannot be looked for", looked);
        }
        let told = alerts::deliver(gateway, timestamp::now()).await;
        telling.hear("alerts cannot be told", told);
    }
}

/// Says once that something fails, and once that it works again.
#[derive(Default)]
struct Complaint {
    made: bool,
}

impl Complaint {
    fn hear(&mut self, what: &str, done: Result<(), impl fmt::Display>) {
        match done {
            Ok(()) if self.made => {
                tracing::info!("no longer so: {what}");
                self.made = false;
            }
            Err(error) if !self.made => {
                tracing::warn!(%error, "{what}; it is tried again");
                self.made = true;
            }
            _ => {}
        }
    }
}
