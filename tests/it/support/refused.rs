//! Refused requests: their error bodies, and what is stored of them.

use std::path::Path;

use serde_json::Value;

use super::{Answer, TestGateway, stores};

/// The path of the page that an error names.
#[track_caller]
pub fn page_of(gateway: &TestGateway, error: &Value) -> String {
    let url = error["request_url"].as_str();
    let url = url.unwrap_or_else(|| panic!("no request_url: {error}"));
    let path = url.strip_prefix(&gateway.url(""));
    path.unwrap_or_else(|| panic!("{url} is of the portal"))
        .to_owned()
}

/// The request ID of a response.
pub fn request_id(answer: &Answer) -> &str {
    answer.headers["x-request-id"].to_str().unwrap()
}

/// How many records are stored, and how many requests are counted.
pub async fn stored(folder: &Path) -> (i64, i64) {
    let sql = "SELECT (SELECT count(*) FROM backoffice_refused),
        (SELECT CAST(coalesce(sum(requests), 0) AS BIGINT) FROM backoffice_refused_counts)";
    if stores::are_shared() {
        let client = stores::connect(&stores::database(folder)).await;
        let row = client.query_one(sql, &[]).await.unwrap();
        return (row.get(0), row.get(1));
    }
    let file = folder.join("tollgate.portal.db");
    let file = rusqlite::Connection::open(file).unwrap();
    let row = file.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
    row.unwrap()
}
