-- The embedded ledger. Units are in the names: `…_nano_usd` are billionths of a dollar, `…_pico_usd` trillionths (prices
-- of one token), `…_ms` milliseconds and `…_at` seconds since 1970. docs/SQL.md has questions and queries.

CREATE TABLE accounts (
    id            TEXT PRIMARY KEY,
    email         TEXT NOT NULL,
    name          TEXT,
    track         TEXT NOT NULL,
    tier          TEXT NOT NULL,
    closed        INTEGER NOT NULL DEFAULT 0,
    created_at    INTEGER NOT NULL,
    -- Charges beyond all grants.
    debt_nano_usd INTEGER NOT NULL DEFAULT 0 CHECK (debt_nano_usd >= 0),
    -- When an expiry left the account without credit; NULL once it gets a new grant.
    lapsed_at     INTEGER
) STRICT;
CREATE INDEX accounts_by_time ON accounts (created_at, id);

-- What keys belong to, beside the default project, which has no row.
CREATE TABLE projects (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- An archived project has no keys. Its calls stay its own.
    archived   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX projects_by_account ON projects (account_id, created_at, id);

-- Only the digest of a key is stored; the prefix is shown on pages.
CREATE TABLE api_keys (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    name       TEXT NOT NULL,
    prefix     TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('active', 'disabled', 'deleted')),
    created_at INTEGER NOT NULL,
    digest     BLOB NOT NULL UNIQUE,
    -- NULL is the default project.
    project_id TEXT REFERENCES projects (id),
    -- The person who made it; NULL for a service key.
    member_id  TEXT,
    -- The rest binds the key in addition to what binds its account. NULL binds nothing.
    expires_at INTEGER,
    -- JSON: the IDs of the models that it may call.
    models     TEXT,
    rpm        INTEGER CHECK (rpm > 0),
    tpm        INTEGER CHECK (tpm > 0),
    -- The secret that the last rotation replaced, and the time from which on it is refused. NULL if there is none.
    previous_prefix TEXT,
    previous_digest BLOB UNIQUE,
    previous_until  INTEGER
) STRICT;
-- The keys of an account, page by page; and those that count against its maximum.
CREATE INDEX api_keys_by_account ON api_keys (account_id, created_at, id);
CREATE INDEX api_keys_live ON api_keys (account_id, created_at, id) WHERE state <> 'deleted';

-- How much an account, a project, a member or a key may spend in a period. What running calls hold of it is in memory.
CREATE TABLE budgets (
    id              TEXT PRIMARY KEY,
    account_id      TEXT NOT NULL REFERENCES accounts (id),
    scope           TEXT NOT NULL CHECK (scope IN ('account', 'project', 'member', 'key')),
    -- The account, project, member or key; `default` is the default project.
    scope_id        TEXT NOT NULL,
    name            TEXT NOT NULL,
    amount_nano_usd INTEGER NOT NULL CHECK (amount_nano_usd > 0),
    period          TEXT NOT NULL CHECK (period IN ('day', 'week', 'month', 'total')),
    timezone        TEXT NOT NULL,
    -- The first day of the week (1 Monday to 7 Sunday) or of the month.
    anchor          INTEGER,
    -- Refuses calls; a soft budget only alerts.
    hard            INTEGER NOT NULL,
    -- JSON: the percentages at which people are told.
    thresholds      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    -- What was spent, as of the last posted call, in the period that begins then: the costs of the calls below it whose
    -- `held_at` is in that period.
    period_start    INTEGER NOT NULL,
    spent_nano_usd  INTEGER NOT NULL,
    UNIQUE (account_id, scope_id, scope, period)
) STRICT;

CREATE TABLE credit_grants (
    id                 TEXT PRIMARY KEY,
    account_id         TEXT NOT NULL REFERENCES accounts (id),
    amount_nano_usd    INTEGER NOT NULL CHECK (amount_nano_usd > 0),
    expires_at         INTEGER,
    reason             TEXT,
    created_at         INTEGER NOT NULL,
    -- Unspent credit of this grant, as of the last posted call.
    remaining_nano_usd INTEGER NOT NULL DEFAULT 0,
    -- The operator's identifier of a payment: a repeated one gives no second grant.
    reference          TEXT
) STRICT;
CREATE INDEX credit_grants_by_account ON credit_grants (account_id);
CREATE UNIQUE INDEX credit_grants_once ON credit_grants (account_id, reference);

-- Operator settings of a model; without a row the catalog decides.
CREATE TABLE model_settings (
    model_id TEXT PRIMARY KEY,
    enabled  INTEGER NOT NULL,
    unlisted INTEGER
) STRICT;

-- Ceilings of a window. An empty account or model stands for all of them; the most specific row with a value applies.
CREATE TABLE limits (
    account_id TEXT NOT NULL,
    model_id   TEXT NOT NULL,
    rpm        INTEGER CHECK (rpm > 0),
    tpm        INTEGER CHECK (tpm > 0),
    PRIMARY KEY (account_id, model_id)
) STRICT;

-- Every admitted call, whatever its outcome: posted within a second of its end, never changed.
CREATE TABLE calls (
    -- Begins with the time of admission: milliseconds since 1970, shifted left by 19 bits.
    id                     INTEGER PRIMARY KEY,
    -- The position of its charge in the view `ledger`; NULL if nothing was charged.
    entry_seq              INTEGER,
    -- The `X-Request-ID` of the response; not unique, because clients may choose it.
    request_id             TEXT NOT NULL,
    account_id             TEXT NOT NULL,
    key_id                 TEXT NOT NULL,
    -- What the key belonged to when the call was admitted: its project, NULL for the default one, and the person who made
    -- it, NULL for a service key.
    project_id             TEXT,
    member_id              TEXT,
    model                  TEXT NOT NULL,
    -- The model that a hybrid chose; otherwise the same as `model`.
    routed_model           TEXT NOT NULL,
    -- The provider's name in the configuration; NULL if none was called.
    upstream               TEXT,
    stream                 INTEGER NOT NULL,
    -- `answered`, or why not: docs/SQL.md has the list.
    outcome                TEXT NOT NULL,
    failure                TEXT,
    admitted_at_ms         INTEGER NOT NULL,
    first_byte_at_ms       INTEGER,
    ended_at_ms            INTEGER NOT NULL,
    reserved_tokens        INTEGER NOT NULL,
    held_nano_usd          INTEGER NOT NULL,
    -- The most that the call could have cost.
    worst_case_nano_usd    INTEGER NOT NULL,
    -- Prices of the routed model at admission, for one token.
    input_pico_usd         INTEGER NOT NULL,
    cached_input_pico_usd  INTEGER NOT NULL,
    output_pico_usd        INTEGER NOT NULL,
    -- From here on NULL if nothing was charged. `prompt_tokens` includes cached and written ones.
    prompt_tokens          INTEGER,
    cached_tokens          INTEGER,
    cache_write_tokens     INTEGER,
    cache_write_1h_tokens  INTEGER,
    completion_tokens      INTEGER,
    reasoning_tokens       INTEGER,
    cost_nano_usd          INTEGER,
    balance_after_nano_usd INTEGER,
    -- When its credit was held, or last raised, in seconds: decides in which period budgets count it.
    held_at                INTEGER,
    -- What the provider charges the operator; NULL if its prices are not configured.
    provider_cost_nano_usd INTEGER,
    -- JSON of what few calls have: failed `attempts`, `steps` of built-in tools, a hybrid's `decision`, the coding `agent`
    -- that sent the request, and `prices` if there are more than the three above.
    detail                 TEXT,
    CHECK ((entry_seq IS NULL) = (cost_nano_usd IS NULL))
) STRICT;
-- Which call had this X-Request-ID?
CREATE INDEX calls_by_request ON calls (request_id);
-- Which are the latest calls, of all accounts or of one?
CREATE INDEX calls_by_time ON calls (ended_at_ms);
CREATE INDEX calls_by_account ON calls (account_id, ended_at_ms);
-- What is the statement of an account?
CREATE INDEX calls_by_entry ON calls (account_id, entry_seq) WHERE entry_seq IS NOT NULL;
-- Which calls failed lately? Most calls are answered, and have no entry in these.
CREATE INDEX calls_not_answered ON calls (outcome, ended_at_ms) WHERE outcome <> 'answered';
CREATE INDEX calls_not_answered_by_account ON calls (account_id, outcome, ended_at_ms)
    WHERE outcome <> 'answered';
-- Which long calls have reservations in the current window?
CREATE INDEX calls_with_steps ON calls (id) WHERE json_extract(detail, '$.steps') IS NOT NULL;

-- Grants and expiries in order. A charge is a row of `calls`, numbered from the same sequence: see the view `ledger`.
CREATE TABLE ledger_entries (
    seq                    INTEGER PRIMARY KEY,
    account_id             TEXT NOT NULL REFERENCES accounts (id),
    -- `opening` is the balance brought forward from calls and entries that were pruned.
    kind                   TEXT NOT NULL CHECK (kind IN ('grant', 'expiry', 'opening')),
    -- The grant; of an opening, the first day that is not pruned.
    ref                    TEXT NOT NULL,
    delta_nano_usd         INTEGER NOT NULL,
    -- The sum of the account's entries up to this one.
    balance_after_nano_usd INTEGER NOT NULL,
    at                     INTEGER NOT NULL
) STRICT;
CREATE INDEX ledger_entries_by_account ON ledger_entries (account_id, seq);
-- A grant is posted once. A call is posted once because its row is.
CREATE UNIQUE INDEX ledger_entries_once ON ledger_entries (ref) WHERE kind = 'grant';

-- Totals of a key's calls with one model on one day (UTC, `2026-11-16`). They remain when calls are pruned.
CREATE TABLE usage_days (
    account_id             TEXT NOT NULL,
    day                    TEXT NOT NULL,
    model                  TEXT NOT NULL,
    key_id                 TEXT NOT NULL,
    -- `default` is the default project.
    project_id             TEXT NOT NULL,
    calls                  INTEGER NOT NULL,
    -- Tokens and cost are those of charged calls.
    charged_calls          INTEGER NOT NULL,
    prompt_tokens          INTEGER NOT NULL,
    cached_tokens          INTEGER NOT NULL,
    cache_write_tokens     INTEGER NOT NULL,
    completion_tokens      INTEGER NOT NULL,
    reasoning_tokens       INTEGER NOT NULL,
    cost_nano_usd          INTEGER NOT NULL,
    -- Calls whose cost at the provider is known, that cost, and what was charged for them beyond it.
    costed_calls           INTEGER NOT NULL,
    provider_cost_nano_usd INTEGER NOT NULL,
    margin_nano_usd        INTEGER NOT NULL,
    last_ended_at_ms       INTEGER NOT NULL,
    PRIMARY KEY (account_id, day, model, key_id, project_id)
) STRICT, WITHOUT ROWID;

-- Holds of running calls by account, as of the last second. The gateway keeps holds in memory and decides by those.
CREATE TABLE held_now (
    account_id    TEXT PRIMARY KEY,
    calls         INTEGER NOT NULL,
    held_nano_usd INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Redo log of finished calls that are not posted yet, in page-sized rows that are overwritten in place: rows that come
-- and go would change the list of free pages with each transaction. At most a second old, except after a crash: the
-- next start posts it. `records` is read by the gateway alone.
CREATE TABLE redo_log (
    -- From 0, without gaps.
    page       INTEGER PRIMARY KEY,
    used_bytes INTEGER NOT NULL,
    records    BLOB NOT NULL
) STRICT;

-- The sequence number up to which calls are posted; the redo log may still hold them.
CREATE TABLE posted (last_seq INTEGER NOT NULL) STRICT;
INSERT INTO posted VALUES (0);

-- Responses of charged calls that had an `Idempotency-Key`, for retries: written in the transaction of the charge. They
-- are text of customers, so they are deleted after `retries.keep_hours`.
CREATE TABLE idempotent_responses (
    account_id    TEXT NOT NULL REFERENCES accounts (id),
    -- As the client sent it.
    key           TEXT NOT NULL,
    -- SHA-256 of the request's path and body.
    request_hash  BLOB NOT NULL,
    call_id       INTEGER NOT NULL,
    stored_at_ms  INTEGER NOT NULL,
    kept_until_ms INTEGER NOT NULL,
    stream        INTEGER NOT NULL,
    -- The model that a hybrid chose.
    routed_model  TEXT,
    body_bytes    INTEGER NOT NULL,
    -- NULL if it was too long, or had to make room for others. The key stays: a retry is not charged again.
    body          TEXT,
    PRIMARY KEY (account_id, key)
) STRICT;
-- Which are the oldest, and how much room do all take?
CREATE INDEX idempotent_responses_by_age ON idempotent_responses (stored_at_ms, body_bytes) WHERE body IS NOT NULL;
-- Which are too old?
CREATE INDEX idempotent_responses_by_end ON idempotent_responses (kept_until_ms);

-- Requests that got the response of another call, which costs nothing: at most twenty of a call.
CREATE TABLE replays (
    id         INTEGER PRIMARY KEY,
    call_id    INTEGER NOT NULL,
    account_id TEXT NOT NULL,
    -- The `X-Request-ID` of the retry.
    request_id TEXT NOT NULL,
    -- `attached` to a running call, or `replayed` after its end.
    kind       TEXT NOT NULL,
    at_ms      INTEGER NOT NULL
) STRICT;
-- Which requests got the response of a call?
CREATE INDEX replays_by_call ON replays (call_id);
-- Which call had this X-Request-ID?
CREATE INDEX replays_by_request ON replays (request_id);
-- How many of an account were there lately?
CREATE INDEX replays_by_account ON replays (account_id, at_ms);

-- Every grant, charge and expiry in order, with the balance after it. `ref` is the grant's ID or the call's.
CREATE VIEW ledger AS
    SELECT seq, account_id, kind, ref, delta_nano_usd, balance_after_nano_usd, at FROM ledger_entries
    UNION ALL
    -- The casts give both halves the same types, without which SQLite would sort a statement.
    SELECT entry_seq, account_id, CAST('charge' AS TEXT), CAST(id AS TEXT), CAST(-cost_nano_usd AS INTEGER),
        balance_after_nano_usd, CAST(ended_at_ms / 1000 AS INTEGER)
    FROM calls WHERE entry_seq IS NOT NULL;

-- What each account has, and what its running calls hold of it.
CREATE VIEW balances AS
    SELECT account_id, email, name, balance_nano_usd, held_nano_usd,
        balance_nano_usd - held_nano_usd AS available_nano_usd
    FROM (SELECT id AS account_id, email, name,
            coalesce((SELECT sum(remaining_nano_usd) FROM credit_grants WHERE account_id = accounts.id), 0)
                - debt_nano_usd AS balance_nano_usd,
            coalesce((SELECT held_nano_usd FROM held_now WHERE account_id = accounts.id), 0) AS held_nano_usd
        FROM accounts);

-- Usage and cost of each account by month (UTC, `2026-11`).
CREATE VIEW spend_by_month AS
    SELECT substr(day, 1, 7) AS month, account_id, sum(calls) AS calls, sum(charged_calls) AS charged_calls,
        sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
        sum(cache_write_tokens) AS cache_write_tokens, sum(completion_tokens) AS completion_tokens,
        sum(reasoning_tokens) AS reasoning_tokens, sum(cost_nano_usd) AS cost_nano_usd
    FROM usage_days GROUP BY 1, 2;

-- Usage and cost of each key by month.
CREATE VIEW spend_by_key AS
    SELECT substr(day, 1, 7) AS month, usage_days.account_id, key_id, api_keys.name AS key_name, sum(calls) AS calls,
        sum(charged_calls) AS charged_calls, sum(prompt_tokens) AS prompt_tokens,
        sum(cached_tokens) AS cached_tokens, sum(cache_write_tokens) AS cache_write_tokens,
        sum(completion_tokens) AS completion_tokens, sum(reasoning_tokens) AS reasoning_tokens,
        sum(cost_nano_usd) AS cost_nano_usd
    FROM usage_days LEFT JOIN api_keys ON api_keys.id = key_id GROUP BY 1, 2, 3, 4;

-- Usage and cost of each project by month.
CREATE VIEW spend_by_project AS
    SELECT substr(day, 1, 7) AS month, usage_days.account_id, project_id,
        coalesce(projects.name, 'Default') AS project_name, sum(calls) AS calls, sum(charged_calls) AS charged_calls,
        sum(prompt_tokens) AS prompt_tokens, sum(completion_tokens) AS completion_tokens,
        sum(cost_nano_usd) AS cost_nano_usd
    FROM usage_days LEFT JOIN projects ON projects.id = project_id GROUP BY 1, 2, 3, 4;

-- Usage and cost of each member by month: of the keys that they made.
CREATE VIEW spend_by_member AS
    SELECT substr(day, 1, 7) AS month, usage_days.account_id, member_id, sum(calls) AS calls,
        sum(charged_calls) AS charged_calls, sum(prompt_tokens) AS prompt_tokens,
        sum(completion_tokens) AS completion_tokens, sum(cost_nano_usd) AS cost_nano_usd
    FROM usage_days JOIN api_keys ON api_keys.id = key_id WHERE member_id IS NOT NULL GROUP BY 1, 2, 3;

-- What was charged for each model by month and, where the provider's prices are configured, what is left of it.
CREATE VIEW margin_by_model AS
    SELECT substr(day, 1, 7) AS month, model, sum(calls) AS calls, sum(charged_calls) AS charged_calls,
        sum(cost_nano_usd) AS charged_nano_usd, sum(costed_calls) AS costed_calls,
        sum(provider_cost_nano_usd) AS provider_cost_nano_usd, sum(margin_nano_usd) AS margin_nano_usd
    FROM usage_days GROUP BY 1, 2;
