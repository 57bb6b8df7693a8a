//! The limiter's behaviour while nothing fails.

use super::*;
use crate::base::rate::Limit;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_together_admit_exactly_up_to_the_ceiling() {
    let server = Server::start(&[]).await;
    let ledger = Ledger::default();
    let mut tasks = Vec::new();
    for gateway in 0..3 {
        let limiter = limiter(&server.url(), DEADLINE, &ledger).await;
        for task in 0..8 {
            let limiter = limiter.clone();
            tasks.push(tokio::spawn(async move {
                let mut admitted = Vec::new();
                for n in 0..20 {
                    let call = gateway * 1_000 + task * 100 + n;
                    match admit(&limiter, call, 1).await {
                        Ok(admission) => admitted.push(admission),
                        Err(NotAdmitted::Refused(refusal)) => {
                            assert_eq!(refusal.requests_left, 0);
                        }
                        Err(NotAdmitted::Unavailable) => panic!("{:?}", limiter.why_not_ready()),
                    }
                }
                admitted.len()
            }));
        }
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert_eq!(admitted, 60);
}

#[tokio::test]
async fn cancel_settle_and_drop_change_the_window_once() {
    let server = Server::start(&[]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    admit(&limiter, 1, 100).await.unwrap().cancel();
    assert_eq!(left(&limiter).await, (60, 1_000), "cancelled: not counted");
    let mut admission = admit(&limiter, 2, 100).await.unwrap();
    admission.settle(30);
    admission.settle(50);
    admission.cancel();
    assert_eq!(
        left(&limiter).await,
        (59, 970),
        "settled: counted with its usage, the first time only"
    );
    drop(admit(&limiter, 3, 100).await.unwrap());
    assert_eq!(
        left(&limiter).await,
        (58, 970),
        "dropped: counted without tokens"
    );
    let mut admission = admit(&limiter, 4, 100).await.unwrap();
    admission.settle(u64::MAX);
    assert_eq!(left(&limiter).await, (57, 0), "usage above the ceiling");
}

#[tokio::test]
async fn admitting_a_call_twice_counts_one_request() {
    let server = Server::start(&[]).await;
    let ledger = Ledger::default();
    let one = limiter(&server.url(), DEADLINE, &ledger).await;
    let other = limiter(&server.url(), DEADLINE, &ledger).await;
    let first = admit(&one, 7, 100).await.unwrap();
    let second = admit(&other, 7, 100).await.unwrap();
    assert_eq!(first.reservations(), second.reservations());
    assert_eq!(left(&one).await, (59, 900));
}

#[tokio::test]
async fn a_request_of_many_steps_is_one_request() {
    let server = Server::start(&[]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    let mut admission = admit(&limiter, 1, 400).await.unwrap();
    admission.renew(100, 500, CEILINGS).await.unwrap();
    assert_eq!(left(&limiter).await, (59, 400), "100 used and 500 reserved");
    admission.renew(300, 600, CEILINGS).await.unwrap();
    assert_eq!(left(&limiter).await, (59, 0));
    let reservations: Vec<_> = (admission.reservations().iter())
        .map(|reservation| (reservation.step, reservation.tokens))
        .collect();
    assert_eq!(reservations, [(0, 100), (1, 300), (2, 600)]);
    match admission.renew(550, 51, CEILINGS).await {
        Err(NotRenewed::Refused(refusal)) => assert_eq!(refusal.limit, Limit::Tokens),
        other => panic!("{other:?}"),
    }
    drop(admission);
    assert_eq!(
        left(&limiter).await,
        (59, 50),
        "the usage of its steps stays"
    );
}

#[tokio::test]
async fn accounts_and_models_do_not_share_a_window() {
    let server = Server::start(&[]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    let one = Ceilings {
        requests: 1,
        ..CEILINGS
    };
    for (call, (account, model)) in (0..).zip([("a", "m"), ("a", "n"), ("b", "m"), ("b}", "{m")]) {
        let admit = async |call| limiter.admit(call, account, model, 1, one).await;
        assert!(admit(2 * call).await.is_ok());
        assert!(admit(2 * call + 1).await.is_err());
    }
}

#[tokio::test]
async fn a_step_whose_previous_entry_is_gone_is_lost() {
    let server = Server::start(&[]).await;
    let limiter = limiter(&server.url(), DEADLINE, &Ledger::default()).await;
    let mut admission = admit(&limiter, 1, 100).await.unwrap();
    let keys: Vec<String> = server.run("KEYS *:a:m").await;
    let _: i64 = server.run(&format!("DEL {}", keys.join(" "))).await;
    let lost = admission.renew(10, 10, CEILINGS).await;
    assert_eq!(lost, Err(NotRenewed::Lost));
    drop(admission);
    assert_eq!(left(&limiter).await, (60, 1_000));
}
