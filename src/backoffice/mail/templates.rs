//! What the letters say.
//!
//! Nothing in them is a stranger's own words: whoever asks for a letter must not be able to write it.

use super::Email;
use crate::base::keys::Secret;

/// To somebody whom an operator has invited.
pub fn invitation(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "You are invited to {portal}/portal\n\n\
         Choose a password here, within seven days:\n\n{}\n\n\
         The link works once. If you expected no invitation, ignore this letter.\n",
        link.reveal()
    );
    message(to, "Your invitation", text)
}

/// To somebody who wants an account, if the address is theirs.
pub fn proof(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "Somebody wants to make an account at {portal}/portal with this address.\n\n\
         If it was you, choose a password here, within a day:\n\n{}\n\n\
         The link works once. If it was not you, ignore this letter: nothing is made without it.\n",
        link.reveal()
    );
    message(to, "Your new account", text)
}

/// To somebody who wants an account and has one.
pub fn known_already(to: &str, portal: &str) -> Email {
    let text = format!(
        "Somebody wants to make an account at {portal}/portal with this address. It has one already.\n\n\
         If it was you, sign in: {portal}/portal/sign-in\n\
         If you have forgotten the password, ask for another: {portal}/portal/forgotten\n\n\
         If it was not you, ignore this letter: nothing has changed.\n"
    );
    message(to, "You have an account already", text)
}

/// To somebody who has forgotten their password.
pub fn reset(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "Somebody has asked for a new password for this address at {portal}/portal\n\n\
         If it was you, set it here, within an hour:\n\n{}\n\n\
         The link works once. If it was not you, ignore this letter: your password is as it was.\n",
        link.reveal()
    );
    message(to, "A new password", text)
}

/// To somebody for whom an operator has made such a link.
pub fn reset_by_operator(to: &str, portal: &str, link: &Secret) -> Email {
    let text = format!(
        "The operator of {portal}/portal lets you set a new password here, within an hour:\n\n{}\n\n\
         The link works once. Until then your password is as it was.\n",
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
