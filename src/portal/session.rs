//! The signed-in person of a request. The session is looked up by its cookie on every request.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{Method, header, request::Parts},
    response::Response,
};
use maud::{Markup, html};

use super::{
    confirmation::{Confirmation, Pending},
    cookies::{Kind, Token},
    error::PortalError,
    rights::{self, Right},
};
use crate::{
    api::RequestLog,
    backoffice::{Person, Role, Session, TeamRole},
    base::timestamp,
    gateway::Gateway,
    ledger::{Account, Budget, BudgetScope, DEFAULT_PROJECT, Key, LedgerError, NewAccount},
};

/// A signed-in person with an account. Without a session, the extractor redirects to the sign-in page; if the route is
/// not for the person's role in the account, it responds with 403.
pub(crate) struct SignedIn {
    pub person: Person,
    pub account: Account,
    pub session: Session,
    /// Whether the person may see the console.
    pub sees_console: bool,
    /// What a form has done, if this is the page after it.
    pub done: Option<Pending>,
    token: Token,
    secure: bool,
}

impl SignedIn {
    /// A hidden field with the form token, which every form of this session needs.
    pub(crate) fn token_field(&self) -> Markup {
        token_field(&self.token)
    }

    pub(crate) fn may(&self, right: Right) -> bool {
        right.has(self.person.team_role)
    }

    pub(crate) fn is_owner(&self) -> bool {
        self.person.team_role == TeamRole::Owner
    }

    /// Whether the person may see and manage a key of the account: owners every key, developers those that they made.
    pub(crate) fn sees_key(&self, key: &Key) -> bool {
        let made = key.payer.member_id.as_ref() == Some(&self.person.id);
        self.is_owner() || (made && self.may(Right::Keys))
    }

    /// The restriction of a query for keys to those that the person made; `None` for owners.
    pub(crate) fn only_own_keys(&self) -> Option<&str> {
        (!self.is_owner()).then_some(&self.person.id)
    }

    /// Developers see the budgets of what is theirs, not what others spend of those of the whole account.
    pub(crate) fn sees_budget(&self, budget: &Budget) -> bool {
        match budget.scope {
            BudgetScope::Key | BudgetScope::Member => true,
            BudgetScope::Project => self.is_owner() || budget.scope_id != DEFAULT_PROJECT,
            BudgetScope::Account => self.is_owner(),
        }
    }

    /// The redirect after a form, to a page that confirms what was done.
    pub(crate) fn redirect(&self, to: &str, done: &Confirmation) -> Response {
        done.redirect(to, &self.token, self.secure)
    }

    pub(crate) fn form_token(&self) -> String {
        self.token.form_token()
    }

    pub(crate) fn check(&self, sent: Option<&str>) -> Result<(), PortalError> {
        let right = sent.is_some_and(|sent| self.token.has_form_token(sent));
        right.then_some(()).ok_or(PortalError::Stale)
    }
}

pub(crate) fn token_field(token: &Token) -> Markup {
    html! { input type="hidden" name="token" value=(token.form_token()); }
}

impl FromRequestParts<Arc<Gateway>> for SignedIn {
    type Rejection = PortalError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, PortalError> {
        let signed_out = || PortalError::SignedOut { to: back_to(parts) };
        let secure = gateway.portal.is_secure();
        let token = Token::presented(&parts.headers, Kind::Session, secure);
        let token = token.ok_or_else(signed_out)?;
        let digest = token.digest();
        let session = gateway.backoffice.session(&digest, timestamp::now());
        let session = session.await?.ok_or_else(signed_out)?;
        let person = session.person.clone().ok_or_else(signed_out)?;
        rights::check(parts, &person)?;
        if gateway.portal.lacks_second_factor(&person) && !rights::is_set_up(parts) {
            return Err(PortalError::NeedsSecondFactor);
        }
        let account = account_of(gateway, &person).await?;
        // Its people are removed a moment later.
        if account.is_deleted() {
            return Err(signed_out());
        }
        if let Some(log) = parts.extensions.get::<RequestLog>() {
            log.account(&account.id);
        }
        Ok(Self {
            sees_console: gateway.portal.console && person.role == Role::Operator,
            person,
            account,
            session,
            done: Pending::of(&parts.headers, &token, secure),
            token,
            secure,
        })
    }
}

/// The person's account. It is created if missing: a person is stored before the account, and the request may
/// have failed in between.
pub(crate) async fn account_of(gateway: &Gateway, person: &Person) -> Result<Account, PortalError> {
    match gateway.ledger.account(&person.account_id).await {
        Err(LedgerError::NotFound { .. }) => {
            let new = new_account(gateway, person);
            Ok(gateway
                .ledger
                .ensure_account(&person.account_id, new)
                .await?)
        }
        found => Ok(found?),
    }
}

/// The initial account of a person, on the plan for sign-ups.
pub(crate) fn new_account(gateway: &Gateway, person: &Person) -> NewAccount {
    NewAccount {
        email: person.email.clone(),
        name: person.name.clone(),
        track: gateway.portal.sign_up_plan.track(),
        tier: gateway.portal.sign_up_plan.tier(),
    }
}

/// The path to return to after signing in. Only GET requests are repeated; for others it is the start page.
fn back_to(parts: &Parts) -> String {
    let page = parts
        .uri
        .path_and_query()
        .filter(|_| parts.method == Method::GET);
    page.map_or_else(|| "/portal".into(), ToString::to_string)
}

/// The `User-Agent` of the browser, cut to 200 characters, for the list of sessions.
pub(crate) fn agent(headers: &axum::http::HeaderMap) -> String {
    let agent = headers.get(header::USER_AGENT);
    let agent = agent.and_then(|value| value.to_str().ok()).unwrap_or("");
    agent.chars().take(200).collect()
}
