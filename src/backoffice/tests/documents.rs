//! Contract of receipts, statements and billing details.

use super::{
    checkouts::{new_checkout, payment},
    *,
};
use crate::backoffice::StoredStatement;

contract!(
    receipts_are_numbered_without_gaps,
    a_statement_is_issued_once,
    billing_details_are_of_an_account,
);

async fn receipts_are_numbered_without_gaps(given: Given) {
    // The clock of tests is in January 2027.
    let backoffice = given.backoffice.clone();
    let tasks = (0..12).map(|number: i64| {
        let backoffice = backoffice.clone();
        tokio::spawn(async move {
            let new = new_checkout("acct_1", NOW + number);
            let opened = backoffice.open_checkout(new, NOW, 100).await;
            let id = opened.unwrap().unwrap().id;
            let session = format!("cs_{number}");
            let payment = payment(&session, 7, NOW + number);
            let paid = backoffice.checkout_paid(&id, &payment).await;
            // Delivered again, it keeps its number.
            let again = backoffice.checkout_paid(&id, &payment).await.unwrap();
            assert_eq!(paid.unwrap(), again);
            again.unwrap().receipt.unwrap().number
        })
    });
    let mut numbers = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        numbers.push(task.await.unwrap());
    }
    numbers.sort_unstable();
    let expected = (1..=12).map(|number| format!("R-2027-{number:06}"));
    assert_eq!(numbers, expected.collect::<Vec<_>>());
    // Deliveries that were repeated have taken no numbers.
    let opened = backoffice.open_checkout(new_checkout("acct_2", NOW), NOW, 100);
    let id = opened.await.unwrap().unwrap().id;
    let paid = backoffice
        .checkout_paid(&id, &payment("cs_13", 7, NOW))
        .await;
    let number = paid.unwrap().unwrap().receipt.unwrap().number;
    assert_eq!(number, "R-2027-000013");
    let of = async |account, number| backoffice.receipt(account, number).await.unwrap();
    let found = of("acct_1", "R-2027-000007").await.unwrap();
    assert_eq!(found.receipt.unwrap().number, "R-2027-000007");
    assert_eq!(of("acct_2", "R-2027-000007").await, None);
    assert_eq!(of("acct_1", "R-2027-000014").await, None);
    // Each year begins again.
    let new_year = NOW + 365 * 86_400;
    let opened = backoffice.open_checkout(new_checkout("acct_2", new_year), NOW, 100);
    let id = opened.await.unwrap().unwrap().id;
    let paid = backoffice
        .checkout_paid(&id, &payment("cs_x", 7, new_year))
        .await;
    assert_eq!(
        paid.unwrap().unwrap().receipt.unwrap().number,
        "R-2028-000001"
    );
}

async fn a_statement_is_issued_once(given: Given) {
    let backoffice = &given.backoffice;
    let new = |content: &str| StoredStatement {
        month: "2026-12".into(),
        content: content.into(),
        issued_at: NOW,
    };
    let first = backoffice
        .issue_statement("acct_1", &new("one"))
        .await
        .unwrap();
    assert_eq!(first, new("one"));
    let second = backoffice
        .issue_statement("acct_1", &new("two"))
        .await
        .unwrap();
    assert_eq!(second, first);
    let other = backoffice
        .issue_statement("acct_2", &new("two"))
        .await
        .unwrap();
    assert_eq!(other, new("two"));
    let stored = backoffice.statement("acct_1", "2026-12").await.unwrap();
    assert_eq!(stored, Some(first));
    assert_eq!(
        backoffice.statement("acct_1", "2026-11").await.unwrap(),
        None
    );
    assert_eq!(
        backoffice.statement_months("acct_1", 9).await.unwrap(),
        ["2026-12"]
    );
}

async fn billing_details_are_of_an_account(given: Given) {
    let backoffice = &given.backoffice;
    assert_eq!(backoffice.bill_to("acct_1").await.unwrap(), "");
    for lines in ["Ada\n1 High Street", "Ada Ltd"] {
        backoffice.set_bill_to("acct_1", lines, NOW).await.unwrap();
        assert_eq!(backoffice.bill_to("acct_1").await.unwrap(), lines);
    }
    assert_eq!(backoffice.bill_to("acct_2").await.unwrap(), "");
}
