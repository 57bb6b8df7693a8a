//! Who has got starter credit: keyed hashes of addresses and identities. They outlive the people, so that deleting an
//! account and signing up again brings no second starter credit.
//!
//! They are among the used one-time tokens, because they are used once too, with an end that never comes. Their key is a
//! secret that is never replaced; without it, the hash does not tell whether a guessed address is right.

use super::{
    Backoffice, BackofficeError, Person,
    cookie_secret::Signed,
    people::email_key,
    sql::{Statement, statement, unexpected},
};
use crate::base::hex::hex;

/// The name of the key among the secrets.
const KEY: &str = "starter credit";
const NEVER: i64 = i64::MAX;
/// Stands for the account of a hash once the account is deleted.
const DELETED: &str = "deleted";

impl Backoffice {
    /// Claims the starter credit of a person for their account; `false` if their address or one of their identities has
    /// claimed it for another account. Repeating it is harmless.
    pub(crate) async fn claim_starter_credit(
        &self,
        person: &Person,
        now: i64,
    ) -> Result<bool, BackofficeError> {
        let account_id = person.account_id.as_str();
        let mut is_first = true;
        for hash in self.starter_hashes(person, now).await? {
            let claim = statement(
                "INSERT INTO backoffice_spent (digest, claim, expires_at) VALUES ($1, $2, $3)
                 ON CONFLICT (digest) DO NOTHING",
                [hash.as_str().into(), account_id.into(), NEVER.into()],
            );
            let rows = self.run(vec![claim, select(&hash)]).await?;
            let first = rows.into_iter().next();
            let mut row = first.ok_or_else(|| unexpected("the claim that was just stored"))?;
            is_first &= row.text()? == account_id;
        }
        Ok(is_first)
    }

    /// Keeps that a person of an account that is deleted has got starter credit, without the account.
    pub(crate) async fn keep_starter_credit(
        &self,
        person: &Person,
        now: i64,
    ) -> Result<(), BackofficeError> {
        let hashes = self.starter_hashes(person, now).await?;
        let keep = |hash: &String| {
            statement(
                "INSERT INTO backoffice_spent (digest, claim, expires_at) VALUES ($1, $2, $3)
                 ON CONFLICT (digest) DO UPDATE SET claim = excluded.claim",
                [hash.as_str().into(), DELETED.into(), NEVER.into()],
            )
        };
        self.run(hashes.iter().map(keep).collect()).await?;
        Ok(())
    }

    /// The hashes of a person's address and identities.
    async fn starter_hashes(
        &self,
        person: &Person,
        now: i64,
    ) -> Result<Vec<String>, BackofficeError> {
        let key = self.secret(KEY, now).await?;
        let hash = |parts: &[&str]| hex(&key.sign(Signed::StarterCredit, parts));
        let mut hashes = vec![hash(&["email", &mailbox(&person.email)])];
        for (issuer, subject) in self.identities_of(&person.id).await? {
            hashes.push(hash(&["identity", &issuer, &subject]));
        }
        Ok(hashes)
    }
}

/// An address without what its owner can vary at will: the case of letters, what is after a `+`, and at Gmail also dots.
fn mailbox(email: &str) -> String {
    let key = email_key(email);
    let Some((local, host)) = key.rsplit_once('@') else {
        return key;
    };
    let name = local.split('+').next().filter(|name| !name.is_empty());
    let name = name.unwrap_or(local);
    match host {
        "gmail.com" | "googlemail.com" => format!("{}@gmail.com", name.replace('.', "")),
        _ => format!("{name}@{host}"),
    }
}

fn select(hash: &str) -> Statement {
    statement(
        "SELECT claim FROM backoffice_spent WHERE digest = $1",
        [hash.into()],
    )
}

#[cfg(test)]
mod tests {
    use super::mailbox;

    #[test]
    fn variants_of_an_address_are_one_mailbox() {
        for (email, expected) in [
            ("ada@example.com", "ada@example.com"),
            (" Ada+Work+2@Example.com ", "ada@example.com"),
            ("a.da@example.com", "a.da@example.com"),
            ("A.d.a+x@GoogleMail.com", "ada@gmail.com"),
            ("+ada@example.com", "+ada@example.com"),
            ("ada", "ada"),
        ] {
            assert_eq!(mailbox(email), expected, "{email}");
        }
    }
}
