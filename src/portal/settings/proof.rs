//! The proof that the person at the browser is the one who has signed in: their current password, and a code if
//! two-factor authentication is on. People without a password, who sign in with an issuer, must have done so lately.

use std::sync::Arc;

use maud::{Markup, html};
use serde::Deserialize;

use crate::{
    api::Peer,
    backoffice::Attempt,
    base::timestamp,
    gateway::Gateway,
    portal::{error::PortalError, session::SignedIn, sign_in::code::use_code},
};

/// How long a sign-in with an issuer stands for a password, in seconds.
const FRESH_SECONDS: i64 = 15 * 60;

pub(crate) const WRONG_PASSWORD: &str = "The current password is wrong.";
const WRONG_CODE: &str = "The code is wrong, or was used before.";
const NOT_FRESH: &str =
    "You signed in more than 15 minutes ago. Sign out, sign in again, and repeat this.";

#[derive(Deserialize)]
pub(crate) struct Proof {
    /// The current password; empty if the person has none.
    #[serde(default)]
    present: String,
    /// A code of the app or a recovery code; empty if the person has no second factor.
    #[serde(default)]
    code: String,
}

/// The fields of a proof, for a form that needs one.
pub(crate) fn fields(me: &SignedIn) -> Markup {
    html! {
        @if me.person.password.is_some() {
            label { "Current password"
                input type="password" name="present" required autocomplete="current-password";
            }
        }
        @if me.person.second_factor_at.is_some() {
            label { "Code from your authenticator app " span.muted { "(or a recovery code)" }
                input type="text" name="code" required maxlength="40" autocomplete="one-time-code"
                    autocapitalize="none" spellcheck="false";
            }
        }
    }
}

/// Checks a proof and uses its code. Returns the problem, if there is one. Attempts are limited, so that a session that
/// was left open cannot be used to guess.
pub(crate) async fn check(
    gateway: &Arc<Gateway>,
    me: &SignedIn,
    Peer(peer): Peer,
    proof: Proof,
) -> Result<Result<(), &'static str>, PortalError> {
    let Some(kept) = me.person.password.clone() else {
        let is_fresh = timestamp::now() - me.session.began_at < FRESH_SECONDS;
        return Ok(is_fresh.then_some(()).ok_or(NOT_FRESH));
    };
    let throttle = &gateway.portal.throttle;
    let counted = throttle
        .attempt(&Attempt::confirmation(&me.person.id, peer))
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let passwords = &gateway.backoffice.passwords;
    if !passwords.verify(proof.present, Some(kept)).await {
        return Ok(Err(WRONG_PASSWORD));
    }
    throttle.succeeded(&counted);
    if me.person.second_factor_at.is_none() {
        return Ok(Ok(()));
    }
    let used = use_code(gateway, &me.person, Peer(peer), &proof.code).await?;
    Ok(used.map(|_| ()).ok_or(WRONG_CODE))
}
