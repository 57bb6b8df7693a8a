-- The embedded ledger. Amounts are nano-dollars, prices pico-dollars a token, times seconds (`…_at`) or milliseconds
-- (`…_ms`) since 1970.

CREATE TABLE accounts (
    id         TEXT PRIMARY KEY,
    email      TEXT NOT NULL,
    name       TEXT,
    track      TEXT NOT NULL,
    tier       TEXT NOT NULL,
    closed     INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    -- Spent beyond all grants.
    debt       INTEGER NOT NULL DEFAULT 0 CHECK (debt >= 0),
    -- When an expiry left the account without credit; NULL once it gets a new grant.
    lapsed_at  INTEGER
) STRICT;
CREATE INDEX accounts_by_time ON accounts (created_at, id);

-- Only the digest of a key is stored; the prefix is shown on pages.
CREATE TABLE api_keys (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    name       TEXT NOT NULL,
    prefix     TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('active', 'disabled', 'deleted')),
    created_at INTEGER NOT NULL,
    digest     BLOB NOT NULL UNIQUE
) STRICT;
CREATE INDEX api_keys_by_account ON api_keys (account_id);

CREATE TABLE credit_grants (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    amount     INTEGER NOT NULL CHECK (amount > 0),
    expires_at INTEGER,
    reason     TEXT,
    created_at INTEGER NOT NULL,
    -- Unspent credit of this grant.
    remaining  INTEGER NOT NULL DEFAULT 0,
    -- The operator's identifier of a payment: a repeated one gives no second grant.
    reference  TEXT
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

-- Grants and expiries in order. The entry of a charge is the record of its call in `call_blocks`, numbered from the
-- same sequence.
CREATE TABLE ledger_entries (
    seq           INTEGER PRIMARY KEY,
    account_id    TEXT NOT NULL REFERENCES accounts (id),
    kind          TEXT NOT NULL CHECK (kind = 'charge' OR kind = 'grant' OR kind = 'expiry'),
    -- The grant, or the call.
    ref           TEXT NOT NULL,
    delta         INTEGER NOT NULL,
    -- The sum of the account's entries up to this one.
    balance_after INTEGER NOT NULL,
    at            INTEGER NOT NULL
) STRICT;
CREATE INDEX ledger_entries_by_account ON ledger_entries (account_id, seq);
-- A grant is posted once. A call is posted once because its record is.
CREATE UNIQUE INDEX ledger_entries_once ON ledger_entries (ref) WHERE kind = 'grant';

-- Consecutive calls of one account in one row, which is cheaper to write than a row and index entries for each call.
CREATE TABLE call_blocks (
    -- The sequence number of its last call.
    seq        INTEGER PRIMARY KEY,
    account_id TEXT NOT NULL,
    calls      INTEGER NOT NULL,
    charges    INTEGER NOT NULL,
    first_id   INTEGER NOT NULL,
    last_id    INTEGER NOT NULL,
    -- When the first and the last of them ended.
    first_ms   INTEGER NOT NULL,
    last_ms    INTEGER NOT NULL,
    -- How many have another outcome than `answered`, and how many had several steps.
    odd        INTEGER NOT NULL,
    stepped    INTEGER NOT NULL,
    -- The records of the calls, concatenated in the order in which they were charged.
    records    BLOB NOT NULL
) STRICT;
CREATE INDEX blocks_by_id ON call_blocks (first_id, last_id);
CREATE INDEX blocks_by_time ON call_blocks (last_ms);
CREATE INDEX blocks_by_account ON call_blocks (account_id, last_ms);
CREATE INDEX blocks_with_charges ON call_blocks (account_id, seq) WHERE charges > 0;
CREATE INDEX odd_blocks_by_time ON call_blocks (last_ms) WHERE odd > 0;
CREATE INDEX odd_blocks_by_account ON call_blocks (account_id, last_ms) WHERE odd > 0;
CREATE INDEX stepped_blocks ON call_blocks (first_id, last_id) WHERE stepped > 0;

-- Index from `X-Request-ID` to calls, for IDs that do not contain the time of the call: mostly those that clients chose.
CREATE TABLE call_names (
    request_id TEXT NOT NULL,
    id         INTEGER NOT NULL,
    PRIMARY KEY (request_id, id)
) STRICT, WITHOUT ROWID;

-- Totals of a key's calls with one model on one day (UTC, `2026-11-16`). Tokens and cost are those of charged calls.
CREATE TABLE usage_days (
    account_id TEXT NOT NULL,
    day        TEXT NOT NULL,
    model      TEXT NOT NULL,
    key_id     TEXT NOT NULL,
    calls      INTEGER NOT NULL,
    charged    INTEGER NOT NULL,
    prompt     INTEGER NOT NULL,
    cached     INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    reasoning  INTEGER NOT NULL,
    cost       INTEGER NOT NULL,
    last_ms    INTEGER NOT NULL,
    PRIMARY KEY (account_id, day, model, key_id)
) STRICT, WITHOUT ROWID;

-- Redo log of finished calls, in page-sized rows that are overwritten in place: rows that come and go would change the
-- list of free pages with each transaction.
CREATE TABLE new_calls (
    -- From 0, without gaps.
    place   INTEGER PRIMARY KEY,
    -- How many bytes of `records` are in use.
    used    INTEGER NOT NULL,
    records BLOB NOT NULL
) STRICT;

-- The sequence number up to which calls are posted; the redo log may still hold them.
CREATE TABLE entered (last_seq INTEGER NOT NULL) STRICT;
INSERT INTO entered VALUES (0);
