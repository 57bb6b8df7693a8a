//! The backoffice's part of `tollgate import`: its tables, which have the same columns in both stores.

use std::path::Path;

use super::{path_beside, postgres::tables};
use crate::db::{
    copy::{Column, Part, Table},
    postgres::{Connected, Error},
};

/// The tables in the file beside a ledger's database.
pub(crate) fn part(database: &Path) -> Part {
    Part {
        file: path_beside(database),
        tables: TABLES,
    }
}

/// Creates the tables in PostgreSQL if there are none.
pub(crate) async fn create_tables(connection: &Connected) -> Result<(), Error> {
    tables::create_if_missing(connection, "BEGIN").await
}

const PEOPLE: Table = Table {
    name: "backoffice_people",
    key: &["id"],
    columns: &[
        Column::text("id"),
        Column::text("email"),
        Column::text("email_key"),
        Column::text("name"),
        Column::text("password"),
        Column::int("password_at"),
        Column::text("role"),
        Column::text("account_id"),
        Column::text("team_role"),
        Column::int("created_at"),
    ],
    identity: None,
};

const SESSIONS: Table = Table {
    name: "backoffice_sessions",
    key: &["digest"],
    columns: &[
        Column::text("digest"),
        Column::text("person_id"),
        Column::text("role"),
        Column::text("agent"),
        Column::int("began_at"),
        Column::int("expires_at"),
    ],
    identity: None,
};

const IDENTITIES: Table = Table {
    name: "backoffice_identities",
    key: &["issuer", "subject"],
    columns: &[
        Column::text("issuer"),
        Column::text("subject"),
        Column::text("person_id"),
        Column::int("connected_at"),
    ],
    identity: None,
};

const FACTORS: Table = Table {
    name: "backoffice_factors",
    key: &["person_id"],
    columns: &[
        Column::text("person_id"),
        Column::text("secret"),
        Column::text("session"),
        Column::int("began_at"),
        Column::int("confirmed_at"),
        Column::int("last_step"),
        Column::text("last_use"),
        Column::int("wrong_codes"),
        Column::int("wrong_since"),
    ],
    identity: None,
};

const RECOVERY_CODES: Table = Table {
    name: "backoffice_recovery_codes",
    key: &["digest"],
    columns: &[
        Column::text("digest"),
        Column::text("person_id"),
        Column::text("used_by"),
    ],
    identity: None,
};

const SPENT: Table = Table {
    name: "backoffice_spent",
    key: &["digest"],
    columns: &[
        Column::text("digest"),
        Column::text("claim"),
        Column::int("expires_at"),
    ],
    identity: None,
};

/// Copied, so that known browsers stay known, operators signed in, and starter credit given once.
const SECRETS: Table = Table {
    name: "backoffice_secrets",
    key: &["name"],
    columns: &[
        Column::text("name"),
        Column::text("secret"),
        Column::int("made_at"),
    ],
    identity: None,
};

const ACTIONS: Table = Table {
    name: "backoffice_actions",
    key: &["seq"],
    columns: &[
        Column::int("seq"),
        Column::text("id"),
        Column::int("at_ms"),
        Column::text("actor"),
        Column::text("what"),
        Column::text("subject"),
        Column::text("value_before"),
        Column::text("value_after"),
    ],
    identity: Some("seq"),
};

const LINKS: Table = Table {
    name: "backoffice_links",
    key: &["digest"],
    columns: &[
        Column::text("digest"),
        Column::text("kind"),
        Column::text("email"),
        Column::text("email_key"),
        Column::text("name"),
        Column::text("person_id"),
        Column::text("account_id"),
        Column::text("role"),
        Column::text("team_role"),
        Column::text("made_by"),
        Column::int("expires_at"),
        Column::int("used_at"),
        Column::text("used_by"),
    ],
    identity: None,
};

const CHECKOUTS: Table = Table {
    name: "backoffice_checkouts",
    key: &["id"],
    columns: &[
        Column::text("id"),
        Column::text("provider"),
        Column::text("session"),
        Column::text("account_id"),
        Column::text("person"),
        Column::int("amount"),
        Column::int("paid_amount"),
        Column::int("created_at"),
        Column::int("paid_at"),
        Column::int("expires_at"),
        Column::text("grant_id"),
        Column::int("automatic"),
        Column::text("consent_id"),
        Column::int("failed_at"),
        Column::text("failure"),
        Column::text("receipt"),
    ],
    identity: None,
};

const NUMBERS: Table = Table {
    name: "backoffice_numbers",
    key: &["name"],
    columns: &[Column::text("name"), Column::int("last")],
    identity: None,
};

const BILLING_DETAILS: Table = Table {
    name: "backoffice_billing_details",
    key: &["account_id"],
    columns: &[
        Column::text("account_id"),
        Column::text("bill_to"),
        Column::int("changed_at"),
    ],
    identity: None,
};

const STATEMENTS: Table = Table {
    name: "backoffice_statements",
    key: &["account_id", "month"],
    columns: &[
        Column::text("account_id"),
        Column::text("month"),
        Column::text("content"),
        Column::int("issued_at"),
    ],
    identity: None,
};

const TOP_UPS: Table = Table {
    name: "backoffice_top_ups",
    key: &["account_id"],
    columns: &[
        Column::text("account_id"),
        Column::text("state"),
        Column::int("threshold"),
        Column::int("amount"),
        Column::int("monthly_max"),
        Column::text("consent"),
        Column::text("consent_id"),
        Column::text("consent_by"),
        Column::int("consent_at"),
        Column::text("provider"),
        Column::text("customer"),
        Column::text("card"),
        Column::text("problem"),
        Column::int("next_at"),
        Column::int("claims"),
        Column::int("told_month"),
    ],
    identity: None,
};

const ALERTS: Table = Table {
    name: "backoffice_alerts",
    key: &["seq"],
    columns: &[
        Column::int("seq"),
        Column::text("id"),
        Column::text("kind"),
        Column::text("subject"),
        Column::text("detail"),
        Column::int("opened_at"),
        Column::int("seen_at"),
        Column::int("closed_at"),
        Column::int("announced"),
    ],
    identity: Some("seq"),
};

const DELIVERIES: Table = Table {
    name: "backoffice_deliveries",
    key: &["id"],
    columns: &[
        Column::text("id"),
        Column::text("alert_id"),
        Column::text("event"),
        Column::text("channel"),
        Column::text("recipient"),
        Column::text("state"),
        Column::int("attempts"),
        Column::int("next_at"),
        Column::int("done_at"),
        Column::text("last_error"),
    ],
    identity: None,
};

const REFUSED: Table = Table {
    name: "backoffice_refused",
    key: &["id"],
    columns: &[
        Column::text("id"),
        Column::int("at_ms"),
        Column::text("request_id"),
        Column::text("account_id"),
        Column::text("key_id"),
        Column::text("project_id"),
        Column::text("member_id"),
        Column::text("path"),
        Column::text("model"),
        Column::int("status"),
        Column::text("code"),
        Column::text("param"),
        Column::text("message"),
        Column::text("agent"),
        Column::int("took_ms"),
    ],
    identity: None,
};

const REFUSED_COUNTS: Table = Table {
    name: "backoffice_refused_counts",
    key: &["account_id", "minute", "key_id", "status", "code", "writer"],
    columns: &[
        Column::text("account_id"),
        Column::int("minute"),
        Column::text("key_id"),
        Column::int("status"),
        Column::text("code"),
        Column::text("writer"),
        Column::int("requests"),
    ],
    identity: None,
};

const CONFIG_VERSIONS: Table = Table {
    name: "backoffice_config_versions",
    key: &["number"],
    columns: &[
        Column::int("number"),
        Column::text("id"),
        Column::int("at_ms"),
        Column::text("actor"),
        Column::text("note"),
        Column::text("content"),
    ],
    identity: None,
};

/// What the gateways report is not copied: they report it again.
#[cfg(test)]
const NOT_COPIED: &[&str] = &["backoffice_config_gateways"];

const TABLES: &[Table] = &[
    PEOPLE,
    SESSIONS,
    IDENTITIES,
    FACTORS,
    RECOVERY_CODES,
    SPENT,
    SECRETS,
    ACTIONS,
    LINKS,
    CHECKOUTS,
    ALERTS,
    DELIVERIES,
    REFUSED,
    REFUSED_COUNTS,
    NUMBERS,
    BILLING_DETAILS,
    STATEMENTS,
    TOP_UPS,
    CONFIG_VERSIONS,
];

#[test]
fn every_column_is_copied() {
    crate::db::copy::testing::assert_lists_all(TABLES, super::schema::SQLITE, NOT_COPIED);
}
