//! Finds, creates and connects the person of an identity.

use super::refusal::Refusal;
use crate::{
    api::Peer,
    backoffice::{
        BackofficeError, Digest, Identity, NewPerson, Person, Role, TeamRole,
        oidc::{Claims, Issuer},
    },
    base::{keys::random_id, timestamp},
    gateway::Gateway,
    portal::{
        error::PortalError,
        session::{account_of, new_account},
        sign_up::{is_address, is_name},
    },
};

fn identity<'a>(issuer: &'a Issuer, claims: &'a Claims) -> Identity<'a> {
    Identity {
        issuer: issuer.id(),
        subject: &claims.subject,
    }
}

/// The person with this identity. If there is none, one is created.
pub(crate) async fn find_or_enrol(
    gateway: &Gateway,
    issuer: &Issuer,
    claims: &Claims,
    Peer(peer): Peer,
) -> Result<Person, Refusal> {
    let (backoffice, identity) = (&gateway.backoffice, identity(issuer, claims));
    if let Some(person) = backoffice.person_by_identity(identity).await? {
        return Ok(person);
    }
    let email = claims.email.as_deref().map(str::trim);
    let email = email.filter(|email| is_address(email));
    let email = email.ok_or(Refusal::NoAddress)?;
    if backoffice.person_by_email(email).await?.is_some() {
        return Err(Refusal::AddressTaken);
    }
    if !gateway.portal.sign_up_open {
        return Err(Refusal::Closed);
    }
    let counted = gateway.portal.throttle.sign_up(peer);
    counted.map_err(|seconds| PortalError::TooMany { seconds })?;
    let name = claims.name.as_deref().map(str::trim);
    let name = name.filter(|name| !name.is_empty() && is_name(name));
    let new = NewPerson {
        email: email.to_owned(),
        name: name.map(str::to_owned),
        password: None,
        role: Role::Customer,
        account_id: random_id("acct_"),
        team_role: TeamRole::Owner,
        now: timestamp::now(),
    };
    let person = match backoffice.add_person_with_identity(new, identity).await {
        Err(BackofficeError::EmailTaken) => return Err(Refusal::AddressTaken),
        added => added?,
    };
    let account = new_account(gateway, &person);
    let ledger = &gateway.ledger;
    ledger.ensure_account(&person.account_id, account).await?;
    Ok(person)
}

/// Looks again at a person for whom a session has begun: if the person or the account was deleted meanwhile, or the
/// identity is no longer theirs, that has ended all sessions that were older. This one ends too.
pub(crate) async fn check_is_still(
    gateway: &Gateway,
    issuer: &Issuer,
    claims: &Claims,
    person: &Person,
) -> Result<(), Refusal> {
    let backoffice = &gateway.backoffice;
    let now = backoffice.person_by_identity(identity(issuer, claims));
    let is_theirs = now.await?.is_some_and(|now| now.id == person.id);
    if is_theirs && !account_of(gateway, person).await?.is_deleted() {
        return Ok(());
    }
    backoffice.end_sessions_of(&person.id, None).await?;
    Err(Refusal::Changed)
}

/// Connects the identity to the person who started the attempt, if they are still signed in.
pub(crate) async fn connect(
    gateway: &Gateway,
    issuer: &Issuer,
    session: &Digest,
    claims: &Claims,
) -> Result<(), Refusal> {
    let (backoffice, now) = (&gateway.backoffice, timestamp::now());
    let session = backoffice.session(session, now).await?;
    let person = session.and_then(|session| session.person);
    let person = person.ok_or(Refusal::SignedOut)?;
    let identity = identity(issuer, claims);
    let connected = backoffice.connect(&person.id, identity, now).await?;
    connected.then_some(()).ok_or(Refusal::IdentityTaken)
}
