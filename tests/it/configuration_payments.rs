//! `[payments]`: the payment provider and the amounts on offer.

use std::time::Duration;

use tollgate::{
    base::money::NanoUsd,
    config::{Offer, PaymentProvider},
};

use crate::configuration::{SMALL, parse, refused};

const VARIABLES: [(&str, &str); 2] = [
    ("STRIPE_KEY", "sk_live_secret"),
    ("STRIPE_WEBHOOK_SECRET", " whsec_secret\n"),
];
const LEAST: &str = r#"
[payments]
provider = "stripe"
secret_key_env = "STRIPE_KEY"
webhook_secret_env = "STRIPE_WEBHOOK_SECRET"
"#;

fn with(more: &str) -> String {
    format!("{SMALL}{LEAST}{more}")
}

#[test]
fn a_section_sets_provider_and_amounts() {
    assert!(parse(SMALL, &[]).payments.is_none());
    let config = parse(&with(""), &VARIABLES);
    let payments = config.payments.as_ref().unwrap();
    let PaymentProvider::Stripe(stripe) = &payments.provider else {
        panic!("{payments:?}")
    };
    assert_eq!(payments.offer, Offer::default());
    assert_eq!(stripe.base_url, "https://api.stripe.com");
    assert_eq!(stripe.timeout, Duration::from_secs(15));
    assert!(stripe.secret_key.matches("sk_live_secret"));
    assert!(stripe.webhook_secret.matches("whsec_secret"));
    assert!(!format!("{config:?}").contains("_secret\""));

    let more = "base_url = \"http://127.0.0.1:1/\"\ntimeout_seconds = 3\ncredit_days = 365\n\
        amounts = [\"2.50\", \"20\"]\nmin = \"2.5\"\nmax = \"20\"\n";
    let payments = parse(&with(more), &VARIABLES).payments.unwrap();
    let cents = |cents| NanoUsd::from_cents(cents).unwrap();
    let offer = Offer {
        amounts: vec![cents(250), cents(2_000)],
        min: cents(250),
        max: cents(2_000),
        credit_days: Some(365),
    };
    assert_eq!(payments.offer, offer);
    // Default amounts above the maximum are not offered.
    let payments = parse(&with("max = \"50\""), &VARIABLES).payments.unwrap();
    assert_eq!(payments.offer.amounts, [cents(1_000), cents(2_500)]);
}

#[test]
fn every_mistake_says_what_to_write() {
    let wrong = r#"
[payments]
provider = "test"
secret_key = "sk_live_secret"
amounts = ["10", "0.001"]
min = 5
max = "0"
credit_days = 0
base_url = "stripe"
webhook = "x"
"#;
    insta::assert_snapshot!(refused(&format!("{SMALL}{wrong}"), &VARIABLES), @r#"
    tollgate.toml cannot be used: 9 mistakes
    - line 8: `payments.provider` is "test"; expected `stripe`
    - line 9: `payments.secret_key` does not belong here: use `secret_key_env` or `secret_key_file`
    - line 7: `payments.webhook_secret_env` is missing; expected the name of the environment variable that holds it
    - line 14: `payments.base_url` is "stripe"; expected a URL, e.g. `https://api.stripe.com`
    - line 11: `payments.min` is 5; expected US dollars in whole cents as a decimal string, e.g. `"5.00"`
    - line 12: `payments.max` is "0"; expected US dollars in whole cents as a decimal string, e.g. `"5.00"`
    - line 10: `payments.amounts` is a list; expected one to twelve amounts in whole cents, e.g. `["10", "25", "100"]`
    - line 13: `payments.credit_days` is 0; expected a number of days from 1 to 36500
    - line 15: `payments.webhook` is not a setting; expected one of `amounts`, `base_url`, `credit_days`, `max`, `min`, `provider`, `secret_key_env`, `secret_key_file`, `timeout_seconds`, `webhook_secret_env`, `webhook_secret_file`
    "#);
    let crossed = "min = \"30\"\nmax = \"20\"\namounts = [\"25\"]";
    insta::assert_snapshot!(refused(&with(crossed), &VARIABLES), @r"
    tollgate.toml cannot be used: 2 mistakes
    - line 7: `payments.min` is more than `max`: nothing could be bought
    - line 7: `payments.amounts` has an amount that is not from `min` to `max`
    ");
}

#[test]
fn starter_credit_and_seller_are_settings_of_the_portal() {
    let portal = parse(SMALL, &[]).portal;
    assert_eq!((portal.starter_credit, portal.seller), (None, Vec::new()));
    let text = "[portal]\nstarter_credit = \"2.50\"\nstarter_credit_days = 30\n\
        seller = \"\"\"\nExample Ltd\n1 High Street\"\"\"\n";
    let portal = parse(&format!("{SMALL}{text}"), &[]).portal;
    let credit = portal.starter_credit.unwrap();
    assert_eq!(
        (credit.amount, credit.days),
        (NanoUsd::new(2_500_000_000), Some(30))
    );
    assert_eq!(portal.seller, ["Example Ltd", "1 High Street"]);
    let wrong = "[portal]\nstarter_credit = \"1000.01\"\nstarter_credit_days = 0\nseller = \"\"\n";
    insta::assert_snapshot!(refused(&format!("{SMALL}{wrong}"), &[]), @r#"
    tollgate.toml cannot be used: 3 mistakes
    - line 7: `portal.starter_credit` is "1000.01"; expected US dollars as a decimal string from "0.01" to "1000", e.g. `"5.00"`
    - line 8: `portal.starter_credit_days` is 0; expected a number of days from 1 to 36500
    - line 9: `portal.seller` is ""; expected one to twelve lines of text, e.g. name, address and tax number
    "#);
    let alone = "[portal]\nstarter_credit_days = 3\n";
    insta::assert_snapshot!(refused(&format!("{SMALL}{alone}"), &[]), @r"
    tollgate.toml cannot be used: 1 mistake
    - line 6: `portal.starter_credit_days` has no effect without `starter_credit`
    ");
}
