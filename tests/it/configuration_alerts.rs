//! `[alerts]`: reported conditions and the channels of their notifications.

use std::time::Duration;

use tollgate::base::money::NanoUsd;

use crate::{
    configuration::{SMALL, parse, refused},
    support::alerts::SECRET,
};

const MAIL: &str = "[mail]\nurl = \"smtp://127.0.0.1\"\nfrom = \"a@example.com\"\n";

#[test]
fn a_section_sets_conditions_and_channels() {
    let alerts = parse(SMALL, &[]).alerts;
    assert!(alerts.enabled && !alerts.tell_customers && alerts.webhook.is_none());
    assert_eq!(alerts.every, Duration::from_secs(30));
    assert_eq!(alerts.low_balance, NanoUsd::parse("5"));
    assert_eq!(alerts.expiring_within, Some(7 * 86_400));
    assert!(parse(&format!("{SMALL}{MAIL}"), &[]).alerts.tell_customers);

    let text = format!(
        "{SMALL}{MAIL}[alerts]\nevery_seconds = 5\nlow_balance = \"0\"\nexpiring_days = 0\n\
         mail_to = [\"Ops <ops@example.com>\"]\ntell_customers = false\n\
         webhook_url = \"https://hooks.example/place?key=canary\"\nwebhook_secret_env = \"HOOK\"\n"
    );
    let alerts = parse(&text, &[("HOOK", SECRET)]).alerts;
    assert_eq!((alerts.low_balance, alerts.expiring_within), (None, None));
    assert_eq!(alerts.every, Duration::from_secs(5));
    assert_eq!(alerts.mail_to, ["ops@example.com"]);
    assert!(!alerts.tell_customers);
    let webhook = alerts.webhook.as_ref().unwrap();
    assert_eq!(webhook.key().unwrap(), b"alert-secret-canary-0123456789ab");
    let printed = format!("{alerts:?}");
    assert!(
        !printed.contains("canary") && !printed.contains(SECRET),
        "{printed}"
    );
}

#[test]
fn every_mistake_says_what_to_write() {
    let with = |more: &str| format!("{SMALL}[alerts]\n{more}\n");
    let short = ("HOOK", "whsec_c2hvcnQ=");
    for (more, variable, told) in [
        (
            "every_seconds = 4",
            short,
            "a number of seconds from 5 to 3600",
        ),
        ("low_balance = 5", short, "US dollars as a decimal string"),
        (
            "low_balance = \"-1\"",
            short,
            "US dollars as a decimal string",
        ),
        (
            "expiring_days = 366",
            short,
            "a number of days from 1 to 365",
        ),
        (
            "mail_to = \"ops@example.com\"",
            short,
            "a list of addresses",
        ),
        ("mail_to = [\"ops\"]", short, "`ops`, which is no address"),
        ("mail_to = [\"ops@example.com\"]", short, "add `[mail]`"),
        ("tell_customers = true", short, "add `[mail]`"),
        (
            "webhook_url = \"https://hooks.example\"",
            short,
            "`alerts.webhook_secret_env` is missing",
        ),
        (
            "webhook_url = \"ftp://hooks.example\"",
            short,
            "`alerts.webhook_url` cannot be used",
        ),
        (
            "webhook_url = \"https://hooks.example\"\nwebhook_secret_env = \"HOOK\"",
            short,
            "`whsec_` and 24 to 64 bytes in base64",
        ),
        (
            "webhook_url = \"https://hooks.example\"\nwebhook_secret_env = \"NONE\"",
            short,
            "names the variable NONE, which is not set",
        ),
        (
            "webhook_secret_env = \"HOOK\"",
            ("HOOK", SECRET),
            "`alerts.webhook_url` is missing",
        ),
        (
            "webhook_url = \"https://hooks.example\"\nwebhook_secret = \"whsec_canary\"",
            short,
            "use `webhook_secret_env` or `webhook_secret_file`",
        ),
        (
            "webhook = \"x\"",
            short,
            "`alerts.webhook` is not a setting",
        ),
    ] {
        let said = refused(&with(more), &[variable]);
        assert!(said.contains(told), "{more}: {said}");
        assert!(
            !said.contains("c2hvcnQ=") && !said.contains("canary"),
            "{said}"
        );
    }
}
