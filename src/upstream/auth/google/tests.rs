use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::Value;

use super::*;
use crate::base::keys::Secret;

/// A key that was made for these tests and opens nothing.
const KEY: &str = include_str!("test_key.pem");
const NOW: i64 = 1_800_000_000;

fn account(private_key: &str) -> Google {
    Google::ServiceAccount {
        email: "gateway@my-project.iam.gserviceaccount.com".into(),
        private_key: Secret::new(private_key),
        key_id: Some("key-1".into()),
        project: Some("my-project".into()),
        token_url: "https://oauth2.googleapis.com/token".into(),
    }
}

fn field(request: &TokenRequest, name: &str) -> String {
    let mut form = request.form.iter().flatten();
    form.find(|(key, _)| *key == name).unwrap().1.clone()
}

fn part(text: &str) -> Value {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
}

#[test]
fn an_assertion_is_signed_and_claims_what_google_demands() {
    let grant = Grant::new(&account(KEY)).unwrap();
    let request = grant.request(NOW).unwrap();
    assert_eq!(request.url, "https://oauth2.googleapis.com/token");
    assert_eq!(field(&request, "grant_type"), GRANT_TYPE);
    let assertion = field(&request, "assertion");
    let (signed, signature) = assertion.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    assert_eq!(
        part(header),
        json!({ "alg": "RS256", "typ": "JWT", "kid": "key-1" })
    );
    assert_eq!(
        part(claims),
        json!({
            "iss": "gateway@my-project.iam.gserviceaccount.com",
            "scope": "https://www.googleapis.com/auth/cloud-platform",
            "aud": "https://oauth2.googleapis.com/token",
            "iat": NOW,
            "exp": NOW + 3_600,
        })
    );
    let public = grant.key.as_ref().unwrap().public_key().as_ref().to_vec();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public);
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    assert!(public.verify(signed.as_bytes(), &signature).is_ok());
    assert!(public.verify(b"another text", &signature).is_err());
}

#[test]
fn a_key_that_cannot_be_used_is_not_quoted() {
    for key in [
        "",
        "secret",
        "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n",
    ] {
        let why = Grant::new(&account(key)).err().unwrap();
        assert!(
            why.contains("private_key") && !why.contains("c2Vj"),
            "{why}"
        );
    }
}

#[test]
fn a_person_is_represented_by_a_refresh_token() {
    let grant = Grant::new(&Google::User {
        client_id: "app.apps.googleusercontent.com".into(),
        client_secret: Secret::new("s"),
        refresh_token: Secret::new("1//r"),
        token_url: "https://oauth2.googleapis.com/token".into(),
    });
    let request = grant.unwrap().request(NOW).unwrap();
    assert_eq!(field(&request, "grant_type"), "refresh_token");
    assert_eq!(field(&request, "refresh_token"), "1//r");
}

#[test]
fn a_machine_asks_its_metadata_server() {
    let host = "metadata.google.internal".to_owned();
    let grant = Grant::new(&Google::Metadata { host }).unwrap();
    let request = grant.request(NOW).unwrap();
    assert_eq!(
        request.url,
        "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
    );
    assert_eq!(request.headers, [("metadata-flavor", "Google".to_owned())]);
    assert!(request.form.is_none());
}
