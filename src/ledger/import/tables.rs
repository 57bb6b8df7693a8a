//! The ledger's tables, in the order in which they are copied: accounts first, because others refer to them.

use crate::db::copy::{Column, Table};

/// Unspent grants of an account in order of use: the earliest expiry first, then the oldest, as `add_grant` sorts them.
/// The greatest number stands for no expiry. A stopped gateway holds nothing.
const FUNDS_OF_GRANTS: &str = "(SELECT json_group_array(json_object(
        'grant_id', g.id, 'remaining_nano_usd', g.remaining_nano_usd, 'held_nano_usd', 0,
        'expires_at', coalesce(g.expires_at, 9223372036854775807))
        ORDER BY coalesce(g.expires_at, 9223372036854775807), g.rowid)
    FROM credit_grants g WHERE g.account_id = accounts.id AND g.remaining_nano_usd > 0)";

const FUNDS: &str = "ARRAY(SELECT jsonb_populate_record(NULL::fund, one)
    FROM jsonb_array_elements(source.funds::jsonb) WITH ORDINALITY AS funds_of (one, number) ORDER BY number)";

pub(super) const ACCOUNTS: Table = Table {
    name: "accounts",
    key: &["id"],
    columns: &[
        Column::text("id"),
        Column::text("email"),
        Column::text("name"),
        Column::text("track"),
        Column::text("tier"),
        Column::flag("closed"),
        Column::int("created_at"),
        Column::json("funds")
            .read_as(FUNDS_OF_GRANTS)
            .written_as(FUNDS),
        Column::int("debt_nano_usd"),
        Column::int("lapsed_at"),
        // The present periods of budgets do not begin in the future, whatever the clock of the database is.
        Column::int("latest_at").read_as(
            "(SELECT coalesce(max(period_start), 0) FROM budgets b WHERE b.account_id = accounts.id)",
        ),
        Column::flag("has_budgets")
            .read_as("EXISTS (SELECT 1 FROM budgets b WHERE b.account_id = accounts.id)"),
    ],
    identity: None,
};

const BUDGETS: Table = Table {
    name: "budgets",
    key: &["id"],
    columns: &[
        Column::text("id"),
        Column::text("account_id"),
        Column::text("scope"),
        Column::text("scope_id"),
        Column::text("name"),
        Column::int("amount_nano_usd"),
        Column::text("period"),
        Column::text("timezone"),
        Column::int("anchor"),
        Column::flag("hard"),
        Column::text("thresholds"),
        Column::int("created_at"),
        Column::int("period_start"),
        // Computed by the database.
        Column::text("period_end").read_as("''").written_as(
            "period_end_of(source.period, source.timezone, source.anchor, source.period_start)",
        ),
        Column::int("spent_nano_usd"),
    ],
    identity: None,
};

const API_KEYS: Table = Table {
    name: "api_keys",
    key: &["id"],
    columns: &[
        Column::text("id"),
        Column::text("account_id"),
        Column::text("name"),
        Column::text("prefix"),
        Column::text("state"),
        Column::int("created_at"),
        Column::bytes("digest"),
        Column::text("project_id"),
        Column::text("member_id"),
        Column::int("expires_at"),
        Column::text("models"),
        Column::int("rpm"),
        Column::int("tpm"),
        Column::text("previous_prefix"),
        Column::bytes("previous_digest"),
        Column::int("previous_until"),
    ],
    identity: None,
};

const PROJECTS: Table = Table {
    name: "projects",
    key: &["id"],
    columns: &[
        Column::text("id"),
        Column::text("account_id"),
        Column::text("name"),
        Column::int("created_at"),
        Column::flag("archived"),
    ],
    identity: None,
};

/// Numbered in the order in which they were given. Grants are never deleted, so their row IDs have no gaps that a
/// `VACUUM` would close.
const CREDIT_GRANTS: Table = Table {
    name: "credit_grants",
    key: &["rowid"],
    columns: &[
        Column::int("seq").read_as("rowid"),
        Column::text("id"),
        Column::text("account_id"),
        Column::int("amount_nano_usd"),
        Column::int("expires_at"),
        Column::text("reason"),
        Column::int("created_at"),
        Column::text("reference"),
    ],
    identity: Some("seq"),
};

const LEDGER_ENTRIES: Table = Table {
    name: "ledger_entries",
    key: &["seq"],
    columns: &[
        Column::int("seq"),
        Column::text("account_id"),
        Column::text("kind"),
        Column::text("ref"),
        Column::int("delta_nano_usd"),
        Column::int("balance_after_nano_usd"),
        Column::int("at"),
    ],
    identity: None,
};

pub(super) const CALLS: Table = Table {
    name: "calls",
    key: &["id"],
    columns: &[
        Column::int("id"),
        Column::int("entry_seq"),
        Column::text("request_id"),
        Column::text("account_id"),
        Column::text("key_id"),
        Column::text("project_id"),
        Column::text("member_id"),
        Column::text("model"),
        Column::text("routed_model"),
        Column::text("upstream"),
        Column::flag("stream"),
        Column::text("outcome"),
        Column::text("failure"),
        Column::int("admitted_at_ms"),
        Column::int("first_byte_at_ms"),
        Column::int("ended_at_ms"),
        Column::int("reserved_tokens"),
        Column::int("held_nano_usd"),
        Column::int("worst_case_nano_usd"),
        Column::int("input_pico_usd"),
        Column::int("cached_input_pico_usd"),
        Column::int("output_pico_usd"),
        Column::int("prompt_tokens"),
        Column::int("cached_tokens"),
        Column::int("cache_write_tokens"),
        Column::int("cache_write_1h_tokens"),
        Column::int("completion_tokens"),
        Column::int("reasoning_tokens"),
        Column::int("cost_nano_usd"),
        Column::int("balance_after_nano_usd"),
        Column::int("held_at"),
        Column::int("provider_cost_nano_usd"),
        Column::json("detail"),
    ],
    identity: None,
};

const USAGE_DAYS: Table = Table {
    name: "usage_days",
    key: &["account_id", "day", "model", "key_id", "project_id"],
    columns: &[
        Column::text("account_id"),
        Column::text("day"),
        Column::text("model"),
        Column::text("key_id"),
        Column::text("project_id"),
        Column::int("calls"),
        Column::int("charged_calls"),
        Column::int("prompt_tokens"),
        Column::int("cached_tokens"),
        Column::int("cache_write_tokens"),
        Column::int("completion_tokens"),
        Column::int("reasoning_tokens"),
        Column::int("cost_nano_usd"),
        Column::int("costed_calls"),
        Column::int("provider_cost_nano_usd"),
        Column::int("margin_nano_usd"),
        Column::int("last_ended_at_ms"),
    ],
    identity: None,
};

const IDEMPOTENT_RESPONSES: Table = Table {
    name: "idempotent_responses",
    key: &["account_id", "key"],
    columns: &[
        Column::text("account_id"),
        Column::text("key"),
        Column::bytes("request_hash"),
        Column::int("call_id"),
        Column::int("stored_at_ms"),
        Column::int("kept_until_ms"),
        Column::flag("stream"),
        Column::text("routed_model"),
        Column::int("body_bytes"),
        Column::text("body"),
    ],
    identity: None,
};

const REPLAYS: Table = Table {
    name: "replays",
    key: &["id"],
    columns: &[
        Column::int("id"),
        Column::int("call_id"),
        Column::text("account_id"),
        Column::text("request_id"),
        Column::text("kind"),
        Column::int("at_ms"),
    ],
    identity: Some("id"),
};

const MODEL_SETTINGS: Table = Table {
    name: "model_settings",
    key: &["model_id"],
    columns: &[
        Column::text("model_id"),
        Column::flag("enabled"),
        Column::flag("unlisted"),
    ],
    identity: None,
};

const LIMITS: Table = Table {
    name: "limits",
    key: &["account_id", "model_id"],
    columns: &[
        Column::text("account_id"),
        Column::text("model_id"),
        Column::int("rpm"),
        Column::int("tpm"),
    ],
    identity: None,
};

pub(crate) const TABLES: &[Table] = &[
    ACCOUNTS,
    PROJECTS,
    API_KEYS,
    BUDGETS,
    CREDIT_GRANTS,
    LEDGER_ENTRIES,
    CALLS,
    USAGE_DAYS,
    IDEMPOTENT_RESPONSES,
    REPLAYS,
    MODEL_SETTINGS,
    LIMITS,
];
