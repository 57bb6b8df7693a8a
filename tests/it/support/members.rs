//! The members of an account, as the operator API lists them.

use reqwest::Method;
use serde_json::Value;

use super::TestGateway;

/// The members of an account, by email address: several come in one second.
pub async fn members(gateway: &TestGateway, account_id: &str) -> Vec<Value> {
    let path = format!("/operator/accounts/{account_id}/members");
    let list = gateway.operate(Method::GET, &path, None).await;
    let mut members = list.assert_ok()["data"].as_array().unwrap().clone();
    members.sort_by_key(|member| member["email"].to_string());
    members
}

pub fn roles(members: &[Value]) -> Vec<&str> {
    let roles = members.iter();
    roles
        .map(|member| member["role"].as_str().unwrap())
        .collect()
}
