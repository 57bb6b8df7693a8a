//! The texts of e-mails.
//!
//! They contain no text from the person who requested the e-mail, so that a stranger cannot use the gateway to send
//! messages.

use super::Email;
use crate::base::keys::Secret;

/// To a person whom an operator has invited.
pub(crate) fn invitation(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "You are invited to {portal}/portal\n\n\
         Choose a password here, within seven days:\n\n{}\n\n\
         The link works once. If you expected no invitation, ignore this e-mail.\n",
        link.reveal()
    );
    message(to, "Your invitation", text)
}

/// To a visitor who signs up, to prove that the address is theirs.
pub(crate) fn proof(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "An account at {portal}/portal was requested for this address.\n\n\
         If it was you, choose a password here, within a day:\n\n{}\n\n\
         The link works once. If it was not you, ignore this e-mail: no account is created without the link.\n",
        link.reveal()
    );
    message(to, "Your new account", text)
}

/// To a visitor who signs up with an address that already has an account.
pub(crate) fn known_already(to: &str, portal: &str) -> Email {
    let text = format!(
        "An account at {portal}/portal was requested for this address, which has one already.\n\n\
         If it was you, sign in: {portal}/portal/sign-in\n\
         If you have forgotten the password, ask for another: {portal}/portal/forgotten\n\n\
         If it was not you, ignore this e-mail: nothing has changed.\n"
    );
    message(to, "You have an account already", text)
}

/// To a person who has requested a new password.
pub(crate) fn reset(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "A new password was requested for this address at {portal}/portal\n\n\
         If it was you, set it here, within an hour:\n\n{}\n\n\
         The link works once. If it was not you, ignore this e-mail: your password has not changed.\n",
        link.reveal()
    );
    message(to, "A new password", text)
}

/// To a person for whom an operator has made a reset link.
pub(crate) fn reset_by_operator(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "The operator of {portal}/portal lets you set a new password here, within an hour:\n\n{}\n\n\
         The link works once. Until then your password does not change.\n",
        link.reveal()
    );
    message(to, "A new password", text)
}

fn message(to: &str, subject: &str, text: String) -> Email {
    Email {
        to: to.to_owned(),
        subject: subject.to_owned(),
        text,
    }
}
