//! Delivery of alerts: repeated until a receiver accepts them, always under one ID, and by one gateway only.

use std::collections::BTreeSet;

use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tollgate::{
    backoffice::{DeliveryState, Event, NewPerson, Role, TeamRole},
    base::timestamp,
    gateway::alerts,
};

use crate::support::{
    FakeUpstream, Process, Step,
    alerts::{PLACE, SECRET, Watched, section},
    gateway::{OPERATOR_TOKEN, hello},
    smtp::FakeSmtp,
    stores,
};

const MODEL: &str = "svc-standard";

/// State, attempts and last error of the only delivery of the only closed alert.
async fn delivery(watched: &Watched) -> (DeliveryState, i64, String) {
    let (_, past) = watched.alerts().await;
    let [told] = past.as_slice() else {
        panic!("one of {past:?}");
    };
    let [delivery] = told.deliveries.as_slice() else {
        panic!("one of {told:?}");
    };
    let error = delivery.last_error.clone().unwrap_or_default();
    (delivery.state, delivery.attempts, error)
}

#[tokio::test]
async fn a_failed_delivery_is_repeated_under_the_same_id() {
    // A reserved port on which no server listens yet.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let data = TempDir::new().unwrap();
    let nobody = FakeUpstream::start().await;
    let section = section(address, "enabled = false");
    let mut watched = Watched::start_in(data, &section, nobody).await;
    alerts::send_test(watched.gateway.inside(), watched.now)
        .await
        .unwrap();
    watched.deliver(0).await;
    let (state, attempts, error) = delivery(&watched).await;
    assert_eq!((state, attempts), (DeliveryState::Waiting, 1));
    assert!(error.to_lowercase().contains("refused"), "{error}");

    watched.hook = FakeUpstream::on(socket.listen(16).unwrap());
    watched.hook.answer(500, "text/plain", "no");
    watched.deliver(4).await;
    assert_eq!(watched.hook.calls(), 0, "it is not time yet");
    watched.deliver(5).await;
    watched.hook.play(vec![Step::Close]);
    watched.deliver(65).await;
    let elsewhere = "HTTP/1.1 302 Found\r\nlocation: /portal\r\ncontent-length: 0\r\n\r\n";
    watched.hook.play(vec![Step::Send(elsewhere.into())]);
    watched.deliver(365).await;
    assert_eq!(
        delivery(&watched).await.2,
        "the endpoint returned status 302"
    );
    watched.hook.answer(204, "text/plain", "");
    watched.deliver(2_165).await;
    watched.deliver(999_999).await;
    let (state, attempts, error) = delivery(&watched).await;
    assert_eq!(
        (state, attempts, &*error),
        (DeliveryState::Delivered, 5, "")
    );

    assert_eq!(watched.notifications().len(), 4, "each is signed");
    let received = watched.hook.received();
    let header = |name: &str| -> BTreeSet<String> {
        let each = received.iter().map(|one| one.header(name).unwrap().into());
        each.collect()
    };
    assert_eq!(header("webhook-id").len(), 1);
    let data = &received[0].body["data"];
    assert_eq!(
        data["closed_at"], data["opened_at"],
        "a test is over at once"
    );
    assert_eq!(
        header("webhook-timestamp").len(),
        4,
        "each when it was sent"
    );
    watched.gateway.stop().await;
}

#[tokio::test]
async fn a_delivery_is_given_up_after_a_permanent_failure() {
    let watched = Watched::start().await;
    let test = async |seconds| {
        let sent = alerts::send_test(watched.gateway.inside(), watched.now + seconds);
        sent.await.unwrap();
        watched.deliver(seconds).await;
    };
    watched.hook.answer(410, "text/plain", "");
    test(0).await;
    let (state, attempts, error) = delivery(&watched).await;
    assert_eq!((state, attempts), (DeliveryState::GivenUp, 1));
    assert!(error.contains("410"), "{error}");
    watched.hook.answer(503, "text/plain", "");
    test(10).await;
    let mut at = 10;
    for wait in [5, 60, 300, 1_800, 7_200, 28_800, 86_400] {
        at += wait;
        watched.deliver(at - 1).await;
        let before = watched.hook.calls();
        watched.deliver(at).await;
        assert_eq!(watched.hook.calls(), before + 1, "after {wait} s");
    }
    watched.deliver(at + 1_000_000).await;
    let (_, past) = watched.alerts().await;
    let given_up = &past[0].deliveries[0];
    assert_eq!(given_up.state, DeliveryState::GivenUp);
    assert_eq!((given_up.attempts, watched.hook.calls()), (8, 9));
    watched.gateway.stop().await;
}

#[tokio::test]
async fn only_one_of_several_gateways_delivers() {
    if !stores::are_shared() {
        return;
    }
    let first = Watched::start().await;
    let data = TempDir::new().unwrap();
    stores::same_database(first.gateway.data.path(), data.path());
    let settings = section(first.hook.address, "enabled = false");
    let second = Watched::start_in(data, &settings, first.hook.clone()).await;
    let (id, key) = first.account_with("1").await;
    for gateway in [&first.gateway, &second.gateway] {
        gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
        gateway.idle().await;
    }
    let both = async |seconds| {
        tokio::join!(first.check(seconds), second.check(seconds));
    };
    both(0).await;
    both(30).await;
    first.give(&id, json!({ "amount": "10" })).await;
    both(60).await;
    let told: Vec<_> = first
        .notifications()
        .into_iter()
        .map(|(what, ..)| what)
        .collect();
    assert_eq!(told, ["alert.opened", "alert.closed"]);
    second.gateway.stop().await;
    first.gateway.stop().await;
}

#[tokio::test]
async fn operators_and_owners_get_emails() {
    let smtp = FakeSmtp::start().await;
    let more = format!(
        "enabled = false\nmail_to = [\"Ops <ops@example.com>\"]\n{}",
        smtp.section()
    );
    let watched = Watched::start_with(&more).await;
    let (id, key) = watched.account_with("1").await;
    watched
        .gateway
        .chat_as(&key, &hello(MODEL))
        .await
        .assert_ok();
    watched.gateway.idle().await;
    watched.check(0).await;
    watched.check(30).await;
    let mut mails = [smtp.next_mail().await, smtp.next_mail().await];
    mails.sort_by_key(|mail| mail.to != "ops@example.com");
    let [to_operator, to_owner] = mails;
    let to_operator = to_operator.text;
    assert!(
        to_operator.contains("Subject: Tollgate: Low balance"),
        "{to_operator}"
    );
    assert!(to_operator.contains(&id) && to_operator.contains("/portal/console/alerts"));
    assert_eq!(to_owner.to, "owner@example.com");
    let to_owner = to_owner.text;
    assert!(
        to_owner.contains("Subject: Your balance is low"),
        "{to_owner}"
    );
    assert!(to_owner.contains(&watched.gateway.inside().links.billing));
    assert!(!to_owner.contains("console"), "{to_owner}");
    watched.give(&id, json!({ "amount": "10" })).await;
    watched.check(60).await;
    assert_eq!(smtp.next_mail().await.to, "ops@example.com");
    assert!(smtp.is_empty(), "only operators get the closing email");
    let (_, past) = watched.alerts().await;
    let closed = past[0].deliveries.iter();
    assert_eq!(closed.filter(|one| one.event == Event::Closed).count(), 2);

    // Emails go to the people who can sign in to the account, and no longer to the account's own address.
    let people = ["ann@example.com", "ben@example.com"];
    for email in people {
        let new = NewPerson {
            email: email.into(),
            name: None,
            password: None,
            role: Role::Customer,
            account_id: id.clone(),
            team_role: TeamRole::Owner,
            now: watched.now,
        };
        let added = watched.gateway.inside().backoffice.add_person(new).await;
        added.unwrap();
    }
    let soon = timestamp::shown(watched.now + 3 * 86_400);
    let grant = json!({ "amount": "1", "expires_at": soon });
    watched.give(&id, grant).await;
    watched.check(700).await;
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(smtp.next_mail().await.to);
    }
    told.sort_unstable();
    assert_eq!(told, [people[0], people[1], "ops@example.com"]);
    assert!(smtp.is_empty());
    watched.gateway.stop().await;
}

/// In the real process: alerts are delivered soon, and no log contains a secret.
#[tokio::test]
async fn a_running_gateway_delivers_alerts_and_logs_no_secret() {
    let hook = FakeUpstream::start().await;
    hook.answer(500, "text/plain", "no");
    let folder = TempDir::new().unwrap();
    let config = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n{}\
         log.level = \"debug\"\ndeployments = [{{ model = \"*\", provider = \"play\" }}]\n\
         [providers.play]\nkind = \"simulator\"\n{}",
        stores::lines(folder.path()),
        section(hook.address, "").replace(
            "webhook_secret_file = \"FILE\"",
            "webhook_secret_env = \"HOOK\""
        ),
    );
    let file = folder.path().join("tollgate.toml");
    std::fs::write(&file, config).unwrap();
    let environment = [
        ("TOLLGATE_OPERATOR_TOKEN", OPERATOR_TOKEN),
        ("HOOK", SECRET),
    ];
    let (mut process, _, operator) = Process::serve(&file, &environment).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = async |path: &str, body| {
        let url = format!("http://{operator}/operator{path}");
        let request = client.post(url).bearer_auth(OPERATOR_TOKEN).json(&body);
        let answer = request.send().await.unwrap();
        answer.json::<serde_json::Value>().await.unwrap()
    };
    let account = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
    let account = post("/accounts", account).await;
    let grants = format!("/accounts/{}/grants", account["id"].as_str().unwrap());
    post(&grants, json!({ "amount": "10" })).await;
    stores::execute(
        folder.path(),
        "UPDATE ledger_entries SET delta_nano_usd = delta_nano_usd - 1",
    )
    .await;
    assert_eq!(post("/audit", json!({})).await["ok"], false);
    process
        .until(|process| process.stderr().contains("delivering an alert failed"))
        .await;
    assert_eq!(hook.received()[0].body["data"]["kind"], "audit.mismatch");
    let ended = process.terminated().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let log = ended.stdout + &ended.stderr;
    assert!(
        log.contains("alert opened: the ledger entries of 1 account"),
        "{log}"
    );
    for secret in [SECRET, &SECRET[6..], PLACE] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}
