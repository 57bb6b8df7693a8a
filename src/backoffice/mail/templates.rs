//! The texts of emails.
//!
//! They contain no text from the person who requested the email, so that a stranger cannot use the gateway to send
//! messages.

use super::Email;
use crate::base::keys::Secret;

/// To a person whom an operator has invited.
pub(crate) fn invitation(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "You are invited to {portal}/portal\n\n\
         Choose a password here, within seven days:\n\n{}\n\n\
         The link works once. If you did not expect an invitation, ignore this email.\n",
        link.reveal()
    );
    message(to, "Your invitation", text)
}

/// To a visitor who signs up, to prove that the address is theirs.
pub(crate) fn proof(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "An account at {portal}/portal was requested for this address.\n\n\
         If it was you, choose a password here, within a day:\n\n{}\n\n\
         The link works once. If it was not you, ignore this email: no account is created without the link.\n",
        link.reveal()
    );
    message(to, "Your new account", text)
}

/// To a visitor who signs up with an address that already has an account.
pub(crate) fn known_already(to: &str, portal: &str) -> Email {
    let text = format!(
        "An account at {portal}/portal was requested for this address, which already has one.\n\n\
         If it was you, sign in: {portal}/portal/sign-in\n\
         If you forgot the password, reset it: {portal}/portal/forgotten\n\n\
         If it was not you, ignore this email: nothing has changed.\n"
    );
    message(to, "You already have an account", text)
}

/// To a person who has requested a new password.
pub(crate) fn reset(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "A new password was requested for this address at {portal}/portal\n\n\
         If it was you, set it here, within an hour:\n\n{}\n\n\
         The link works once. If it was not you, ignore this email: your password has not changed.\n",
        link.reveal()
    );
    message(to, "Reset your password", text)
}

/// To a person for whom an operator has made a reset link.
pub(crate) fn reset_by_operator(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "The operator of {portal}/portal sent you a link to set a new password. It works for an hour:\n\n{}\n\n\
         The link works once. Until then your password does not change.\n",
        link.reveal()
    );
    message(to, "Reset your password", text)
}

/// To the address that a person wants to have, with the link that proves it.
pub(crate) fn new_email(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "Confirm this address to sign in with it at {portal}/portal\n\n\
         If you asked for it, confirm it here, within an hour, in the browser in which you are signed in:\n\n{}\n\n\
         The link works once. If it was not you, ignore this email: nothing changes without the link.\n",
        link.reveal()
    );
    message(to, "Confirm your email address", text)
}

/// To an address that a person wants to have, and that another person has already.
pub(crate) fn email_in_use(to: &str, portal: &str) -> Email {
    let text = format!(
        "Someone wants to use this address at {portal}/portal, where it already has an account.\n\n\
         If it was you, sign in with it, or delete that account first. If it was not you, ignore this email: nothing \
         has changed.\n"
    );
    message(to, "You already have an account", text)
}

/// To the address that a person had before.
pub(crate) fn email_changed(to: &str, portal: &str) -> Email {
    let text = format!(
        "This address no longer signs in at {portal}/portal: it was changed to another one.\n\n\
         If it was not you, tell the operator at once.\n"
    );
    message(to, "Your email address was changed", text)
}

/// To a person whose second factor was turned on or off.
pub(crate) fn second_factor(to: &str, portal: &str, is_on: bool) -> Email {
    let state = if is_on { "on" } else { "off" };
    let text = format!(
        "Two-factor authentication was turned {state} for this address at {portal}/portal\n\n\
         If it was not you, set a new password at once: {portal}/portal/forgotten\n"
    );
    message(to, &format!("Two-factor authentication is {state}"), text)
}

/// To a person whose codes are being guessed.
pub(crate) fn wrong_codes(to: &str, portal: &str) -> Email {
    let text = format!(
        "Your password was entered at {portal}/portal, and then several wrong codes.\n\n\
         If it was not you, your password is known to others. Set a new one at once: {portal}/portal/forgotten\n"
    );
    message(to, "Wrong codes for your account", text)
}

/// To a person whose account was deleted.
pub(crate) fn account_deleted(to: &str, portal: &str) -> Email {
    let text = format!(
        "The account of this address at {portal}/portal was deleted by an owner. Its API keys no longer work.\n"
    );
    message(to, "Your account was deleted", text)
}

fn message(to: &str, subject: &str, text: String) -> Email {
    Email {
        to: to.to_owned(),
        subject: subject.to_owned(),
        text,
    }
}
