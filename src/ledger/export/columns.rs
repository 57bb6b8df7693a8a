//! The columns of an export: those of the tables, `call`, the ID by which pages, logs and the API know a call, and
//! `session`, which is in the detail of a call.
//!
//! Numbers of calls have 18 digits, more than a spreadsheet or JavaScript can tell apart; `call` joins the exports.

/// A column of an export.
pub(crate) struct Column {
    pub name: &'static str,
    /// What is selected, in words that both stores know.
    pub sql: &'static str,
    pub kind: Kind,
}

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Bool,
    Text,
    /// The number of a call, exported as its ID.
    Call,
    Json,
}

const fn integer(name: &'static str) -> Column {
    Column {
        name,
        sql: name,
        kind: Kind::Integer,
    }
}

const fn text(name: &'static str) -> Column {
    Column {
        name,
        sql: name,
        kind: Kind::Text,
    }
}

const fn as_kind(name: &'static str, sql: &'static str, kind: Kind) -> Column {
    Column { name, sql, kind }
}

pub(crate) static CALLS: [Column; 35] = [
    as_kind("call", "id", Kind::Call),
    integer("id"),
    integer("entry_seq"),
    text("request_id"),
    text("account_id"),
    text("key_id"),
    text("project_id"),
    text("member_id"),
    text("model"),
    text("routed_model"),
    text("upstream"),
    as_kind("stream", "stream", Kind::Bool),
    text("outcome"),
    text("failure"),
    integer("admitted_at_ms"),
    integer("first_byte_at_ms"),
    integer("ended_at_ms"),
    integer("reserved_tokens"),
    integer("held_nano_usd"),
    integer("worst_case_nano_usd"),
    integer("input_pico_usd"),
    integer("cached_input_pico_usd"),
    integer("output_pico_usd"),
    integer("prompt_tokens"),
    integer("cached_tokens"),
    integer("cache_write_tokens"),
    integer("cache_write_1h_tokens"),
    integer("completion_tokens"),
    integer("reasoning_tokens"),
    integer("cost_nano_usd"),
    integer("balance_after_nano_usd"),
    integer("held_at"),
    integer("provider_cost_nano_usd"),
    as_kind("session", "detail -> 'agent' ->> 'session'", Kind::Text),
    as_kind("detail", "CAST(detail AS text)", Kind::Json),
];

pub(crate) static LEDGER: [Column; 8] = [
    integer("seq"),
    text("account_id"),
    text("kind"),
    text("ref"),
    as_kind(
        "call",
        "CASE WHEN kind IN ('charge', 'reversal') THEN CAST(ref AS bigint) END",
        Kind::Call,
    ),
    integer("delta_nano_usd"),
    integer("balance_after_nano_usd"),
    integer("at"),
];

pub(crate) static USAGE: [Column; 17] = [
    text("account_id"),
    text("day"),
    text("model"),
    text("key_id"),
    text("project_id"),
    integer("calls"),
    integer("charged_calls"),
    integer("prompt_tokens"),
    integer("cached_tokens"),
    integer("cache_write_tokens"),
    integer("completion_tokens"),
    integer("reasoning_tokens"),
    integer("cost_nano_usd"),
    integer("costed_calls"),
    integer("provider_cost_nano_usd"),
    integer("margin_nano_usd"),
    integer("last_ended_at_ms"),
];
