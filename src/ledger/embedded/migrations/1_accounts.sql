CREATE TABLE accounts (
    id         TEXT PRIMARY KEY,
    email      TEXT NOT NULL,
    name       TEXT,
    track      TEXT NOT NULL,
    tier       TEXT NOT NULL,
    closed     INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;

-- Only the digest of a key is kept; the prefix is for showing.
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

-- Amounts are billionths of a US dollar.
CREATE TABLE credit_grants (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    amount     INTEGER NOT NULL CHECK (amount > 0),
    expires_at INTEGER,
    reason     TEXT,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX credit_grants_by_account ON credit_grants (account_id);

-- What the operator decided about a model; a missing row leaves it to the catalog.
CREATE TABLE model_settings (
    model_id TEXT PRIMARY KEY,
    enabled  INTEGER NOT NULL,
    unlisted INTEGER
) STRICT;
