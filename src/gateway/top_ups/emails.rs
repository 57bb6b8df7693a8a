//! Emails about automatic top-ups, to the account's people who see its credit.

use std::sync::Arc;

use crate::{
    backoffice::{TeamRole, TopUp, mail::Email},
    base::month::Month,
    gateway::{Gateway, alerts::messages::dollars},
};

/// A payment has failed, and top-ups are paused.
pub(super) async fn paused(gateway: &Arc<Gateway>, account_id: &str, problem: &str) {
    let text = format!(
        "Auto top-up of your account is paused: {problem}.\n\n\
         No more credit is bought. Requests are refused once your credit is used up.\n\n\
         Add credit and turn auto top-up on again:\n{}\n",
        gateway.links.billing
    );
    tell(gateway, account_id, "Auto top-up is paused", &text).await;
}

/// The balance is low, and the maximum of the month allows no more.
pub(super) async fn at_maximum(gateway: &Arc<Gateway>, top_up: &TopUp, month: Month) {
    let text = format!(
        "Auto top-up of your account has reached its monthly maximum of {}.\n\n\
         Your balance is below {}, and no more credit is bought until {} (UTC). Requests are refused once your credit is \
         used up.\n\n\
         Add credit or change the maximum:\n{}\n",
        dollars(&top_up.monthly_max.to_string()),
        dollars(&top_up.threshold.to_string()),
        month.next().first_day(),
        gateway.links.billing
    );
    let subject = "Auto top-up has reached its monthly maximum";
    tell(gateway, &top_up.account_id, subject, &text).await;
}

async fn tell(gateway: &Arc<Gateway>, account_id: &str, subject: &str, text: &str) {
    let people = gateway.backoffice.people_of(account_id).await;
    let people = people.unwrap_or_else(|error| {
        tracing::error!(account.id = account_id, %error, "an account's people could not be told: {subject}");
        Vec::new()
    });
    for person in people {
        if !matches!(person.team_role, TeamRole::Owner | TeamRole::Billing) {
            continue;
        }
        let email = Email {
            to: person.email,
            subject: subject.to_owned(),
            text: text.to_owned(),
        };
        gateway.send_later(async move { Some(email) });
    }
}
