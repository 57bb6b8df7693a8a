//! Settings of `[portal]` about money: credit for new accounts, and the seller on receipts.

use crate::base::{
    checked_toml::{Section, as_integer, as_text},
    money::NanoUsd,
};

/// A hundred years.
const MAX_DAYS: u32 = 36_500;
/// A thousand dollars: more is a mistake, because anyone can sign up.
const MAX_STARTER_CREDIT: NanoUsd = NanoUsd::new(1_000_000_000_000);
const MAX_SELLER_LINES: usize = 12;
const MAX_SELLER_LINE: usize = 200;

/// Credit that an account gets once, when its owner has signed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StarterCredit {
    pub amount: NanoUsd,
    /// It expires after this many days; `None` means never.
    pub days: Option<u32>,
}

pub(super) fn starter_credit(section: &mut Section) -> Option<StarterCredit> {
    let has_amount = section.contains("starter_credit");
    let expected = "US dollars as a decimal string from \"0.01\" to \"1000\", e.g. `\"5.00\"`";
    let amount = section.optional("starter_credit", expected, |value| {
        let amount = NanoUsd::parse(&as_text(value)?)?;
        let cent = NanoUsd::new(10_000_000);
        (cent..=MAX_STARTER_CREDIT)
            .contains(&amount)
            .then_some(amount)
    });
    let expected = "a number of days from 1 to 36500";
    let days = section.optional("starter_credit_days", expected, |value| {
        as_integer(value).filter(|days| (1..=MAX_DAYS).contains(days))
    });
    if days.is_some() && !has_amount {
        section.mistake(
            "starter_credit_days",
            "has no effect without `starter_credit`",
        );
    }
    amount.map(|amount| StarterCredit { amount, days })
}

/// The lines that name the seller on receipts and statements.
pub(super) fn seller(section: &mut Section) -> Vec<String> {
    let expected = "one to twelve lines of text, e.g. name, address and tax number";
    let lines = section.optional("seller", expected, |value| {
        let text = as_text(value)?;
        let lines: Vec<String> = text
            .trim()
            .lines()
            .map(|line| line.trim().to_owned())
            .collect();
        let is_line = |line: &String| {
            line.chars().count() <= MAX_SELLER_LINE && !line.contains(char::is_control)
        };
        ((1..=MAX_SELLER_LINES).contains(&lines.len()) && lines.iter().all(is_line))
            .then_some(lines)
    });
    lines.unwrap_or_default()
}
