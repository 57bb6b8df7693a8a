//! Contract of members: roles in an account, removal, and the last owner.

use super::*;
use crate::backoffice::{Identity, MadeLink, NewLink, Purpose};

contract!(
    a_role_in_the_account_is_changed_at_once,
    a_last_owner_stays_an_owner,
    of_owners_who_remove_each_other_one_stays,
    of_owners_who_remove_and_demote_at_once_one_stays,
    a_removed_member_leaves_nothing_behind,
    a_refused_removal_changes_nothing,
    an_owner_who_gets_another_role_leaves_no_invitations,
    the_first_person_of_an_account_is_its_owner,
);

impl Given {
    async fn member(&self, email: &str, team_role: TeamRole) -> Person {
        let new = NewPerson {
            team_role,
            ..new_person(email)
        };
        self.backoffice.add_person(new).await.unwrap()
    }

    async fn invitation(&self, email: &str, account_id: &str, maker: Option<&Person>) -> Digest {
        let new = NewLink {
            email: email.into(),
            purpose: Purpose::Invitation {
                account_id: account_id.into(),
                role: Role::Customer,
                team_role: TeamRole::Viewer,
            },
            made_by: maker.map(|maker| maker.email.clone()),
            now: NOW,
        };
        let made = self.backoffice.make_link(new).await.unwrap();
        MadeLink::digest(made.secret.reveal()).unwrap()
    }

    async fn is_open(&self, link: &Digest) -> bool {
        self.backoffice.link(link, NOW).await.unwrap().is_some()
    }

    /// The roles of the people of `acct_1`, by email address.
    async fn team(&self) -> Vec<TeamRole> {
        let mut people = self.backoffice.people_of("acct_1").await.unwrap();
        people.sort_by(|one, other| one.email.cmp(&other.email));
        people.into_iter().map(|person| person.team_role).collect()
    }

    /// The backoffices of two gateways; with SQLite the only one twice.
    fn pair(&self) -> [Arc<Backoffice>; 2] {
        let other = match &self.place {
            Place::Folder(_) => self.backoffice.clone(),
            place @ Place::Database(_) => Arc::new(place.open()),
        };
        [self.backoffice.clone(), other]
    }
}

fn is_last_owner<T>(result: &Result<T, BackofficeError>) -> bool {
    matches!(result, Err(BackofficeError::LastOwner))
}

async fn a_role_in_the_account_is_changed_at_once(given: Given) {
    let owner = given.member("ada@example.com", TeamRole::Owner).await;
    let member = given.member("grace@example.com", TeamRole::Viewer).await;
    let digest = given.session(1, &member, NOW).await;
    for team_role in [
        TeamRole::Developer,
        TeamRole::Developer,
        TeamRole::Billing,
        TeamRole::Owner,
        TeamRole::Viewer,
    ] {
        let changed = given.backoffice.set_team_role(&member.id, team_role).await;
        let expected = Person {
            team_role,
            ..member.clone()
        };
        assert_eq!(changed.unwrap(), Some(expected.clone()));
        let session = given.backoffice.session(&digest, NOW).await.unwrap();
        assert_eq!(session.unwrap().person, Some(expected));
    }
    let unknown = given
        .backoffice
        .set_team_role("person_1", TeamRole::Owner)
        .await;
    assert_eq!(unknown.unwrap(), None);
    let found = given.backoffice.person(&owner.id).await.unwrap();
    assert_eq!(found, Some(owner));
}

async fn a_last_owner_stays_an_owner(given: Given) {
    let owner = given.member("ada@example.com", TeamRole::Owner).await;
    let other = given.member("grace@example.com", TeamRole::Billing).await;
    // Owners of other accounts do not count.
    let elsewhere = NewPerson {
        account_id: "acct_2".into(),
        ..new_person("eve@example.com")
    };
    given.backoffice.add_person(elsewhere).await.unwrap();
    for role in [TeamRole::Billing, TeamRole::Developer, TeamRole::Viewer] {
        let changed = given.backoffice.set_team_role(&owner.id, role).await;
        assert!(is_last_owner(&changed), "{role:?}: {changed:?}");
    }
    assert!(is_last_owner(&given.backoffice.remove_member(&owner).await));
    assert_eq!(given.team().await, [TeamRole::Owner, TeamRole::Billing]);
    let same = given
        .backoffice
        .set_team_role(&owner.id, TeamRole::Owner)
        .await;
    assert_eq!(same.unwrap(), Some(owner.clone()));
    // With another owner both are allowed.
    let promoted = given.backoffice.set_team_role(&other.id, TeamRole::Owner);
    promoted.await.unwrap();
    let demoted = given.backoffice.set_team_role(&owner.id, TeamRole::Viewer);
    demoted.await.unwrap();
    assert_eq!(given.team().await, [TeamRole::Viewer, TeamRole::Owner]);
    given.backoffice.remove_member(&owner).await.unwrap();
    assert_eq!(given.team().await, [TeamRole::Owner]);
}

/// Each of them removes the next one, at the same moment and, with PostgreSQL, at two gateways.
async fn of_owners_who_remove_each_other_one_stays(given: Given) {
    let gateways = given.pair();
    for round in 0..10 {
        let mut owners = given.backoffice.people_of("acct_1").await.unwrap();
        while owners.len() < 2 + round % 3 {
            let email = format!("{round}.{}@example.com", owners.len());
            owners.push(given.member(&email, TeamRole::Owner).await);
        }
        let tasks: Vec<_> = (owners.iter().cloned().enumerate())
            .map(|(number, owner)| {
                let backoffice = gateways[number % 2].clone();
                tokio::spawn(async move { backoffice.remove_member(&owner).await })
            })
            .collect();
        let mut refused = 0;
        for one in tasks {
            let removed = one.await.unwrap();
            assert!(removed.is_ok() || is_last_owner(&removed), "{removed:?}");
            refused += usize::from(removed.is_err());
        }
        assert_eq!(refused, 1, "round {round}");
        assert_eq!(given.team().await, [TeamRole::Owner], "round {round}");
    }
}

async fn of_owners_who_remove_and_demote_at_once_one_stays(given: Given) {
    let gateways = given.pair();
    for round in 0..10 {
        for person in given.backoffice.people_of("acct_1").await.unwrap() {
            given.backoffice.remove_person(&person.id).await.unwrap();
        }
        let one = given.member("ada@example.com", TeamRole::Owner).await;
        let other = given.member("grace@example.com", TeamRole::Owner).await;
        let (removed, demoted) = tokio::join!(
            gateways[0].remove_member(&one),
            gateways[1].set_team_role(&other.id, TeamRole::Viewer),
        );
        let refused = [is_last_owner(&removed), is_last_owner(&demoted)];
        assert_eq!(
            refused.iter().filter(|refused| **refused).count(),
            1,
            "round {round}: {removed:?} {demoted:?}"
        );
        let owners = given.team().await.into_iter();
        assert_eq!(
            owners.filter(|role| *role == TeamRole::Owner).count(),
            1,
            "round {round}"
        );
    }
}

const IDENTITY: Identity<'static> = Identity {
    issuer: "https://id.example.com",
    subject: "1",
};

async fn a_removed_member_leaves_nothing_behind(given: Given) {
    let owner = given.member("ada@example.com", TeamRole::Owner).await;
    let member = given.member("Grace@example.com", TeamRole::Owner).await;
    let (stays, ends) = (
        given.session(1, &owner, NOW).await,
        given.session(2, &member, NOW).await,
    );
    let connected = given.backoffice.connect(&member.id, IDENTITY, NOW);
    assert!(connected.await.unwrap());
    let theirs = given
        .invitation("a@example.com", "acct_1", Some(&member))
        .await;
    let to_them = given
        .invitation("grace@EXAMPLE.com", "acct_2", Some(&owner))
        .await;
    let other = given
        .invitation("b@example.com", "acct_1", Some(&owner))
        .await;
    for _ in 0..2 {
        given.backoffice.remove_member(&member).await.unwrap();
    }
    assert_eq!(given.backoffice.person(&member.id).await.unwrap(), None);
    assert!(given.is_in(&stays).await && !given.is_in(&ends).await);
    let identity = given.backoffice.person_by_identity(IDENTITY).await;
    assert_eq!(identity.unwrap(), None);
    assert!(given.is_open(&other).await);
    assert!(!given.is_open(&theirs).await && !given.is_open(&to_them).await);
    for table in [
        "SELECT count(*) FROM backoffice_sessions",
        "SELECT count(*) FROM backoffice_links",
        "SELECT 1 + count(*) FROM backoffice_identities",
    ] {
        assert_eq!(given.count(table).await, 1, "{table}");
    }
}

async fn a_refused_removal_changes_nothing(given: Given) {
    let owner = given.member("ada@example.com", TeamRole::Owner).await;
    let session = given.session(1, &owner, NOW).await;
    let connected = given.backoffice.connect(&owner.id, IDENTITY, NOW);
    assert!(connected.await.unwrap());
    let link = given
        .invitation("a@example.com", "acct_1", Some(&owner))
        .await;
    assert!(is_last_owner(&given.backoffice.remove_member(&owner).await));
    assert!(given.is_in(&session).await && given.is_open(&link).await);
    let identity = given.backoffice.person_by_identity(IDENTITY).await;
    assert_eq!(identity.unwrap(), Some(owner));
}

async fn an_owner_who_gets_another_role_leaves_no_invitations(given: Given) {
    let owner = given.member("ada@example.com", TeamRole::Owner).await;
    let other = given.member("grace@example.com", TeamRole::Owner).await;
    let (theirs, elsewhere, others) = (
        given
            .invitation("a@example.com", "acct_1", Some(&owner))
            .await,
        // By an operator, who is a person of this account.
        given
            .invitation("b@example.com", "acct_2", Some(&owner))
            .await,
        given
            .invitation("c@example.com", "acct_1", Some(&other))
            .await,
    );
    let same = given.backoffice.set_team_role(&owner.id, TeamRole::Owner);
    same.await.unwrap();
    assert!(given.is_open(&theirs).await);
    let changed = given.backoffice.set_team_role(&owner.id, TeamRole::Viewer);
    changed.await.unwrap();
    assert!(!given.is_open(&theirs).await);
    assert!(given.is_open(&elsewhere).await && given.is_open(&others).await);
}

async fn the_first_person_of_an_account_is_its_owner(given: Given) {
    for (email, team_role) in [
        ("first@example.com", TeamRole::Owner),
        ("second@example.com", TeamRole::Viewer),
    ] {
        let link = given.invitation(email, "acct_1", None).await;
        let joined = given.backoffice.join_by_link(&link, None, "hash", NOW);
        let person = joined.await.unwrap().unwrap();
        assert_eq!(person.team_role, team_role, "{email}");
    }
}

#[test]
fn team_roles_are_read_as_they_are_written() {
    for role in TeamRole::ALL {
        assert_eq!(TeamRole::parse(role.as_str()), Some(role));
    }
    for text in ["", "Owner", "customer", "operator", " viewer"] {
        assert_eq!(TeamRole::parse(text), None, "{text}");
    }
}
