//! Contract of alerts and their deliveries.

use super::*;
use crate::backoffice::{
    Alert, AlertKind, AlertWithDeliveries, Channel, Delivery, DeliveryState, Event, NewAlert, Route,
};

contract!(
    concurrent_gateways_open_one_alert,
    an_alert_reopened_within_the_hour_is_not_announced,
    an_alert_still_open_after_the_hour_is_announced,
    an_alert_updated_since_it_was_read_is_not_closed,
    a_claimed_delivery_cannot_be_claimed_before_its_lease_ends,
    concurrent_claims_take_each_delivery_once,
    pages_of_closed_alerts_have_no_gap,
    alerts_closed_long_ago_are_deleted,
);

const KIND: AlertKind = AlertKind::BalanceLow;

fn routes() -> Vec<Route> {
    let route = |channel, to: &str| Route {
        channel,
        recipient: to.into(),
    };
    vec![
        route(Channel::Webhook, ""),
        route(Channel::Customer, "acct_1"),
    ]
}

impl Given {
    async fn open_alert(&self, subject: &str, now: i64) -> Option<String> {
        let new = NewAlert {
            kind: KIND,
            subject,
            detail: &format!("{{\"now\":{now}}}"),
            routes: &routes(),
            now,
            announced_after: now - 3_600,
        };
        self.backoffice.open_alert(new).await.unwrap()
    }

    /// The backoffice of another gateway; with SQLite there is only one.
    fn another_gateway(&self) -> Arc<Backoffice> {
        match &self.place {
            Place::Folder(_) => self.backoffice.clone(),
            place @ Place::Database(_) => Arc::new(place.open()),
        }
    }

    async fn open(&self) -> Vec<AlertWithDeliveries> {
        self.backoffice
            .open_alerts_with_deliveries(100)
            .await
            .unwrap()
    }

    async fn the_open_one(&self) -> Alert {
        let mut open = self.backoffice.open_alerts(KIND, 100).await.unwrap();
        assert_eq!(open.len(), 1, "{open:?}");
        open.remove(0)
    }

    async fn close(&self, alert: &Alert, now: i64) -> bool {
        let closed = self
            .backoffice
            .close_alert(alert, &routes()[..1], now)
            .await;
        closed.unwrap()
    }

    async fn claim(&self, now: i64) -> Vec<Delivery> {
        let claimed = self.backoffice.claim_deliveries(now, now + 60, 10).await;
        claimed.unwrap()
    }
}

async fn concurrent_gateways_open_one_alert(given: Given) {
    let tasks = (0..8).map(|number| {
        let backoffice = given.another_gateway();
        tokio::spawn(async move {
            let new = NewAlert {
                kind: KIND,
                subject: "acct_1",
                detail: "{}",
                routes: &routes(),
                now: NOW + number,
                announced_after: 0,
            };
            let opened = backoffice.open_alert(new).await.unwrap();
            let claimed = backoffice.claim_deliveries(NOW + 10, NOW + 70, 10).await;
            (usize::from(opened.is_some()), claimed.unwrap().len())
        })
    });
    let (mut opened, mut claimed) = (0, 0);
    for one in tasks.collect::<Vec<_>>() {
        let (one_opened, one_claimed) = one.await.unwrap();
        opened += one_opened;
        claimed += one_claimed;
    }
    assert_eq!(
        (opened, claimed),
        (1, 2),
        "it is announced once on each route"
    );
    let [open] = &*given.open().await else {
        panic!("one is open");
    };
    assert_eq!(open.deliveries.len(), 2);
    let counts = given.backoffice.open_alert_counts().await.unwrap();
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(KIND, 1)]);
    assert!(
        given.open_alert("acct_2", NOW).await.is_some(),
        "another subject"
    );
}

async fn an_alert_reopened_within_the_hour_is_not_announced(given: Given) {
    assert!(given.open_alert("acct_1", NOW).await.is_some());
    assert!(given.open_alert("acct_1", NOW + 5).await.is_none());
    let alert = given.the_open_one().await;
    assert_eq!((alert.opened_at, alert.seen_at), (NOW, NOW + 5));
    assert_eq!(alert.detail, format!("{{\"now\":{}}}", NOW + 5));
    assert!(given.close(&alert, NOW + 10).await);
    assert!(given.close(&alert, NOW + 10).await, "idempotent");
    // `closed` is delivered after `opened`.
    let mut delivered = Vec::new();
    for count in [2, 1, 0] {
        let claimed = given.claim(NOW + 10).await;
        assert_eq!(claimed.len(), count, "{claimed:?}");
        for one in &claimed {
            given.backoffice.delivered(one, NOW + 10).await.unwrap();
        }
        delivered.extend(claimed);
    }
    let mut delivered: Vec<_> = delivered
        .iter()
        .map(|one| (one.event.as_str(), one.channel.as_str()))
        .collect();
    delivered.sort_unstable();
    assert_eq!(
        delivered,
        [
            ("closed", "webhook"),
            ("opened", "customer"),
            ("opened", "webhook")
        ]
    );
    for (now, count) in [(NOW + 20, 0), (NOW + 3_599, 0), (NOW + 3_600, 2)] {
        given.open_alert("acct_1", now).await.unwrap();
        given.close(&given.the_open_one().await, now + 1).await;
        assert_eq!(given.claim(now + 1).await.len(), count, "{now}");
    }
}

async fn an_alert_still_open_after_the_hour_is_announced(given: Given) {
    given.open_alert("acct_1", NOW).await.unwrap();
    given.close(&given.the_open_one().await, NOW + 1).await;
    for _ in 0..2 {
        for one in given.claim(NOW + 1).await {
            given.backoffice.delivered(&one, NOW + 1).await.unwrap();
        }
    }
    given.open_alert("acct_1", NOW + 2).await.unwrap();
    let alert = given.the_open_one().await;
    assert!(!alert.announced);
    let routes = routes();
    let announce = async |now| {
        let announced = given
            .backoffice
            .announce_alert(&alert, &routes, now, now - 3_600);
        announced.await.unwrap();
        given.claim(now).await.len()
    };
    assert_eq!(announce(NOW + 3_599).await, 0);
    assert_eq!(announce(NOW + 3_600).await, 2);
    assert!(given.the_open_one().await.announced);
    assert_eq!(announce(NOW + 3_601).await, 0, "idempotent");
}

async fn an_alert_updated_since_it_was_read_is_not_closed(given: Given) {
    given.open_alert("acct_1", NOW).await.unwrap();
    let seen = given.the_open_one().await;
    given
        .backoffice
        .see_alert(&seen.id, "{}", NOW + 1)
        .await
        .unwrap();
    assert!(!given.close(&seen, NOW + 2).await);
    assert!(given.close(&given.the_open_one().await, NOW + 3).await);
    given
        .backoffice
        .see_alert(&seen.id, "{}", NOW + 4)
        .await
        .unwrap();
    let alert = given.backoffice.alert(&seen.id).await.unwrap().unwrap();
    assert_eq!((alert.closed_at, alert.seen_at), (Some(NOW + 3), NOW + 1));
    assert_eq!(given.backoffice.alert("alert_none").await.unwrap(), None);
}

async fn a_claimed_delivery_cannot_be_claimed_before_its_lease_ends(given: Given) {
    given.open_alert("acct_1", NOW).await.unwrap();
    assert_eq!(given.claim(NOW - 1).await, []);
    let first = given.claim(NOW).await;
    assert_eq!(first.len(), 2);
    assert!(
        first
            .iter()
            .all(|one| one.attempts == 1 && one.event == Event::Opened)
    );
    assert_eq!(given.claim(NOW + 59).await, []);
    // The lease has ended, as if the gateway had died.
    let second = given.claim(NOW + 60).await;
    assert_eq!(second.len(), 2);
    assert_eq!(second[0].attempts, 2);
    let backoffice = &given.backoffice;
    // A late result of the first attempt is ignored, unless it is a success.
    backoffice
        .not_delivered(&first[0], NOW, "late")
        .await
        .unwrap();
    backoffice
        .give_up_delivery(&first[0], NOW, "late")
        .await
        .unwrap();
    assert_eq!(given.claim(NOW + 61).await, []);
    backoffice.delivered(&first[0], NOW + 61).await.unwrap();
    backoffice
        .not_delivered(&second[1], NOW + 70, "why")
        .await
        .unwrap();
    let third = given.claim(NOW + 70).await;
    assert_eq!(third.len(), 1);
    assert_eq!(
        (third[0].attempts, third[0].last_error.as_deref()),
        (3, Some("why"))
    );
    backoffice
        .give_up_delivery(&third[0], NOW + 71, "no use")
        .await
        .unwrap();
    assert_eq!(given.claim(NOW + 100_000).await, []);
    let [open] = &*given.open().await else {
        panic!("one is open");
    };
    let mut states: Vec<_> = open
        .deliveries
        .iter()
        .map(|one| (one.state.as_str(), one.done_at, one.last_error.as_deref()))
        .collect();
    states.sort_unstable();
    assert_eq!(
        states,
        [
            (DeliveryState::Delivered.as_str(), Some(NOW + 61), None),
            (
                DeliveryState::GivenUp.as_str(),
                Some(NOW + 71),
                Some("no use")
            ),
        ]
    );
}

async fn concurrent_claims_take_each_delivery_once(given: Given) {
    for number in 0..30 {
        given.open_alert(&format!("acct_{number}"), NOW).await;
    }
    let all_at_once = Arc::new(tokio::sync::Barrier::new(6));
    let tasks = (0..6).map(|_| {
        let all_at_once = all_at_once.clone();
        let backoffice = given.another_gateway();
        tokio::spawn(async move {
            // Opens the connection first, so that all claim at the same moment.
            backoffice.open_alerts(KIND, 1).await.unwrap();
            all_at_once.wait().await;
            let mut claimed = Vec::new();
            for _ in 0..20 {
                let some = backoffice.claim_deliveries(NOW, NOW + 60, 5).await;
                claimed.extend(some.unwrap().into_iter().map(|one| one.id));
            }
            claimed
        })
    });
    let mut claimed = Vec::new();
    for one in tasks.collect::<Vec<_>>() {
        claimed.extend(one.await.unwrap());
    }
    // A claim that waited for another may have returned fewer, so some may be left.
    claimed.extend(
        given
            .backoffice
            .claim_deliveries(NOW, NOW + 60, 100)
            .await
            .unwrap()
            .into_iter()
            .map(|one| one.id),
    );
    claimed.sort_unstable();
    let count = claimed.len();
    claimed.dedup();
    assert_eq!((count, claimed.len()), (60, 60));
}

async fn pages_of_closed_alerts_have_no_gap(given: Given) {
    for number in 0..5 {
        let subject = format!("acct_{number}");
        given.open_alert(&subject, NOW).await.unwrap();
        if number != 2 {
            let open = given.backoffice.open_alerts(KIND, 10).await.unwrap();
            let alert = open.iter().find(|alert| alert.subject == subject).unwrap();
            given.close(alert, NOW + 1).await;
        }
    }
    let (mut before, mut seen) = (None, Vec::new());
    loop {
        let page = given
            .backoffice
            .closed_alerts_with_deliveries(before, 3)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.alert.seq);
        assert!(page.iter().all(|one| one.deliveries.len() == 3));
        seen.extend(page.into_iter().map(|one| one.alert.subject));
    }
    assert_eq!(seen, ["acct_4", "acct_3", "acct_1", "acct_0"]);
    assert_eq!(given.the_open_one().await.subject, "acct_2");
}

async fn alerts_closed_long_ago_are_deleted(given: Given) {
    for (number, subject) in (0..).zip(["acct_1", "acct_2", "acct_3"]) {
        given.open_alert(subject, NOW).await.unwrap();
        let open = given.backoffice.open_alerts(KIND, 10).await.unwrap();
        given.close(&open[0], NOW + number).await;
    }
    given.open_alert("acct_4", NOW - 100).await.unwrap();
    given.backoffice.prune_alerts(NOW + 1).await.unwrap();
    let alerts = given.count("SELECT count(*) FROM backoffice_alerts").await;
    let deliveries = given
        .count("SELECT count(*) FROM backoffice_deliveries")
        .await;
    assert_eq!((alerts, deliveries), (3, 3 + 3 + 2));
}
