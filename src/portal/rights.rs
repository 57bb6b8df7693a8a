//! What each role in an account may open in the portal: one table of routes, one of rights.
//!
//! Every page and every form of a signed-in person is checked against them before it runs
//! ([`SignedIn`](super::session::SignedIn)). A route that is missing here is refused for every role.

use axum::{extract::MatchedPath, http::request::Parts};

use super::error::PortalError;
use crate::backoffice::{Person, TeamRole};

/// What a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To be a member: pages that every role sees, and what concerns only oneself.
    Member,
    /// To see requests: all of the account, or a developer's own.
    Requests,
    /// To make and manage keys: all of the account, or a developer's own.
    Keys,
    /// To create, rename and archive projects.
    Projects,
    /// To see, set and remove budgets.
    Budgets,
    /// To spend the account's credit in the playground.
    Playground,
    /// To see and buy credit.
    Billing,
    /// To invite, change and remove members.
    Members,
    /// To delete the account.
    Account,
}

/// The routes of signed-in people, with the right that each needs.
pub const ROUTES: [(&str, Right); 57] = [
    ("/portal", Right::Member),
    ("/portal/sign-out", Right::Member),
    ("/portal/keys", Right::Keys),
    ("/portal/keys/deleted", Right::Keys),
    ("/portal/keys/{id}", Right::Keys),
    ("/portal/keys/{id}/rotate", Right::Keys),
    ("/portal/keys/{id}/disable", Right::Keys),
    ("/portal/keys/{id}/enable", Right::Keys),
    ("/portal/keys/{id}/delete", Right::Keys),
    ("/portal/projects", Right::Projects),
    ("/portal/projects/{id}/rename", Right::Projects),
    ("/portal/projects/{id}/archive", Right::Projects),
    ("/portal/budgets", Right::Budgets),
    ("/portal/budgets/{id}/remove", Right::Budgets),
    ("/portal/playground", Right::Playground),
    ("/portal/playground/run", Right::Playground),
    ("/portal/playground/charge", Right::Playground),
    ("/portal/usage", Right::Member),
    ("/portal/usage.csv", Right::Member),
    ("/portal/requests", Right::Requests),
    ("/portal/requests/refused", Right::Requests),
    ("/portal/requests/find", Right::Requests),
    ("/portal/requests.csv", Right::Requests),
    ("/portal/requests/{id}", Right::Requests),
    ("/portal/billing", Right::Billing),
    ("/portal/billing.csv", Right::Billing),
    ("/portal/billing/checkout", Right::Billing),
    ("/portal/billing/details", Right::Billing),
    ("/portal/billing/payments", Right::Billing),
    ("/portal/billing/statements", Right::Billing),
    ("/portal/billing/statements/{month}", Right::Billing),
    ("/portal/billing/receipts/{number}", Right::Billing),
    ("/portal/billing/top-up", Right::Billing),
    ("/portal/billing/top-up/off", Right::Billing),
    ("/portal/billing/test-payment/{checkout}", Right::Billing),
    ("/portal/plan", Right::Member),
    ("/portal/models", Right::Member),
    ("/portal/members", Right::Member),
    ("/portal/members/leave", Right::Member),
    ("/portal/members/invitations", Right::Members),
    ("/portal/members/invitations/withdraw", Right::Members),
    ("/portal/members/{id}/role", Right::Members),
    ("/portal/members/{id}/remove", Right::Members),
    ("/portal/settings", Right::Member),
    ("/portal/settings/profile", Right::Member),
    ("/portal/settings/email", Right::Member),
    ("/portal/settings/email/confirm", Right::Member),
    ("/portal/settings/password", Right::Member),
    ("/portal/settings/sessions", Right::Member),
    ("/portal/settings/two-factor", Right::Member),
    ("/portal/settings/two-factor/begin", Right::Member),
    ("/portal/settings/two-factor/confirm", Right::Member),
    ("/portal/settings/two-factor/codes", Right::Member),
    ("/portal/settings/two-factor/off", Right::Member),
    ("/portal/settings/delete", Right::Account),
    ("/portal/oidc/connect", Right::Member),
    ("/portal/oidc/disconnect", Right::Member),
];

/// The routes whose forms are not counted as changes ([`is_change`]): they leave nothing for good, or have a limit of their
/// own. Ending a key, a session, a membership or automatic payments has to work always; each ends once, and what begins it
/// is counted.
const NOT_COUNTED: [&str; 11] = [
    "/portal/sign-out",
    "/portal/keys/{id}/disable",
    "/portal/keys/{id}/delete",
    "/portal/playground",
    "/portal/playground/run",
    "/portal/billing/checkout",
    "/portal/billing/test-payment/{checkout}",
    "/portal/billing/top-up/off",
    "/portal/members/{id}/remove",
    "/portal/settings/sessions",
    "/portal/settings/delete",
];

impl Right {
    /// The roles that have it.
    pub fn roles(self) -> &'static [TeamRole] {
        use TeamRole::{Billing, Developer, Owner};
        match self {
            Self::Member => &TeamRole::ALL,
            Self::Requests | Self::Keys | Self::Playground => &[Owner, Developer],
            Self::Billing | Self::Budgets => &[Owner, Billing],
            Self::Members | Self::Projects | Self::Account => &[Owner],
        }
    }

    pub(crate) fn has(self, role: TeamRole) -> bool {
        self.roles().contains(&role)
    }

    /// Says to a person without the right who has it.
    pub(crate) fn explanation(self, role: TeamRole) -> String {
        let what = match self {
            Self::Member => "This page is for members of the account.",
            Self::Requests => "Requests are for owners and developers of the account.",
            Self::Keys => "API keys are for owners and developers of the account.",
            Self::Projects => "Only owners of the account can change its projects.",
            Self::Budgets => {
                "Budgets are for owners of the account and members with the role billing."
            }
            Self::Playground => "The playground is for owners and developers of the account.",
            Self::Billing => {
                "Billing is for owners of the account and members with the role billing."
            }
            Self::Members => "Only owners of the account can change its members.",
            Self::Account => "Only owners can delete the account.",
        };
        let role = role.as_str();
        format!("{what} Your role is {role}; an owner can change it under Members.")
    }
}

/// The right that a route needs, by its pattern.
pub(crate) fn of_route(route: &str) -> Option<Right> {
    let mut routes = ROUTES.iter();
    routes
        .find(|(listed, _)| *listed == route)
        .map(|(_, right)| *right)
}

/// Whether a request is one of those that people may make who still have to turn on two-factor authentication: to set
/// it up, and to sign out.
pub(crate) fn is_set_up(parts: &Parts) -> bool {
    let route = parts.extensions.get::<MatchedPath>();
    let route = route.map_or("", MatchedPath::as_str);
    route.starts_with("/portal/settings/two-factor") || route == "/portal/sign-out"
}

/// Whether a form of this request counts as a change that is recorded or leaves rows. Any form does whose route is not
/// listed, so that no new one is forgotten.
pub(crate) fn is_change(parts: &Parts) -> bool {
    let route = parts.extensions.get::<MatchedPath>();
    route.is_none_or(|route| !NOT_COUNTED.contains(&route.as_str()))
}

/// Refuses a request for a route that the person's role may not use.
pub(crate) fn check(parts: &Parts, person: &Person) -> Result<(), PortalError> {
    let route = parts.extensions.get::<MatchedPath>();
    let route = route.map_or("", MatchedPath::as_str);
    let Some(right) = of_route(route) else {
        let reason = format!("the route {route} has no right in portal/rights.rs");
        return Err(PortalError::Unavailable(reason));
    };
    let role = person.team_role;
    right
        .has(role)
        .then_some(())
        .ok_or(PortalError::NotAllowed { right, role })
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;
    use crate::backoffice::Role;

    #[test]
    fn every_route_is_listed_once() {
        for (route, _) in ROUTES {
            let times = ROUTES.iter().filter(|(other, _)| *other == route).count();
            assert_eq!(times, 1, "{route}");
        }
        assert_eq!(of_route("/portal/new"), None);
        for route in NOT_COUNTED {
            assert!(of_route(route).is_some(), "{route}");
        }
    }

    #[test]
    fn a_route_without_a_right_is_refused_for_owners_too() {
        let owner = Person {
            id: "person_1".into(),
            email: "ada@example.com".into(),
            name: None,
            password: None,
            role: Role::Customer,
            account_id: "acct_1".into(),
            team_role: TeamRole::Owner,
            created_at: 0,
            second_factor_at: None,
        };
        let (parts, ()) = Request::new(()).into_parts();
        let refused = check(&parts, &owner);
        assert!(
            matches!(refused, Err(PortalError::Unavailable(_))),
            "{refused:?}"
        );
    }

    #[test]
    fn owners_have_every_right_and_viewers_see_without_changing() {
        let all = ROUTES.map(|(_, right)| right);
        assert!(all.iter().all(|right| right.has(TeamRole::Owner)));
        let seen = all.iter().filter(|right| right.has(TeamRole::Viewer));
        assert!(seen.into_iter().all(|right| *right == Right::Member));
    }
}
