//! Contract of the secret that signs cookies.

use super::*;
use crate::backoffice::cookie_secret::{CookieSecret, Signed};

contract!(
    the_secret_is_created_once_and_kept,
    gateways_that_create_the_secret_at_once_agree,
    a_rotated_secret_replaces_the_previous_one,
    a_secret_that_cannot_be_read_is_an_error,
);

async fn secret(backoffice: &Backoffice) -> CookieSecret {
    backoffice.cookie_secret(NOW).await.unwrap()
}

/// Secrets are compared by what they sign.
fn signature(secret: &CookieSecret) -> Digest {
    secret.sign(Signed::Device, &["x"])
}

async fn the_secret_is_created_once_and_kept(given: Given) {
    let first = signature(&secret(&given.backoffice).await);
    assert_eq!(signature(&secret(&given.backoffice).await), first);
    let given = given.restart();
    assert_eq!(signature(&secret(&given.backoffice).await), first);
    let mut rows = given.run("SELECT secret FROM backoffice_secrets").await;
    let text = rows[0].text().unwrap();
    assert_eq!((rows.len(), text.len()), (1, 64));
    let other = Given::sqlite();
    assert_ne!(signature(&secret(&other.backoffice).await), first);
}

async fn gateways_that_create_the_secret_at_once_agree(given: Given) {
    let tasks = (0..10).map(|_| {
        // Gateways on one file are tasks of one process; others have connections of their own.
        let backoffice = match given.place {
            Place::Folder(_) => given.backoffice.clone(),
            Place::Database(_) => Arc::new(given.place.open()),
        };
        tokio::spawn(async move { signature(&secret(&backoffice).await) })
    });
    let mut found = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        found.push(task.await.unwrap());
    }
    found.dedup();
    assert_eq!(found.len(), 1);
}

async fn a_rotated_secret_replaces_the_previous_one(given: Given) {
    let backoffice = &given.backoffice;
    // Also before the first use.
    backoffice.rotate_cookie_secret(NOW).await.unwrap();
    let before = signature(&secret(backoffice).await);
    backoffice.rotate_cookie_secret(NOW + 1).await.unwrap();
    let after = signature(&secret(backoffice).await);
    assert_ne!(before, after);
    let made_at = given.count("SELECT made_at FROM backoffice_secrets").await;
    assert_eq!(made_at, NOW + 1);
    assert_eq!(signature(&secret(backoffice).await), after);
}

/// Without the check, an empty secret would sign cookies that anyone can forge.
async fn a_secret_that_cannot_be_read_is_an_error(given: Given) {
    secret(&given.backoffice).await;
    given.run("UPDATE backoffice_secrets SET secret = ''").await;
    let read = given.backoffice.cookie_secret(NOW).await;
    assert!(is_unavailable(&read));
}
