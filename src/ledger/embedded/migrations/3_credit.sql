-- What is left of each grant, and what was spent beyond them all.
ALTER TABLE credit_grants ADD COLUMN remaining INTEGER NOT NULL DEFAULT 0;
UPDATE credit_grants SET remaining = amount;
ALTER TABLE accounts ADD COLUMN debt INTEGER NOT NULL DEFAULT 0 CHECK (debt >= 0);

-- Every change of a balance, in order; nothing here is ever changed or removed.
CREATE TABLE ledger_entries (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id    TEXT NOT NULL REFERENCES accounts (id),
    kind          TEXT NOT NULL CHECK (kind IN ('grant', 'charge')),
    -- The grant, or the call: each is entered once.
    ref           TEXT NOT NULL,
    delta         INTEGER NOT NULL,
    balance_after INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    UNIQUE (kind, ref)
) STRICT;

CREATE INDEX ledger_entries_by_account ON ledger_entries (account_id, seq);

-- One row for each call that was charged, with the prices it was charged at (trillionths of a US
-- dollar a token).
CREATE TABLE usage (
    id             TEXT PRIMARY KEY,
    account_id     TEXT NOT NULL REFERENCES accounts (id),
    key_id         TEXT NOT NULL,
    model          TEXT NOT NULL,
    routed_model   TEXT NOT NULL,
    prompt         INTEGER NOT NULL,
    cached         INTEGER NOT NULL,
    completion     INTEGER NOT NULL,
    reasoning      INTEGER NOT NULL,
    input_price    INTEGER NOT NULL,
    cached_price   INTEGER NOT NULL,
    output_price   INTEGER NOT NULL,
    cost           INTEGER NOT NULL,
    stream         INTEGER NOT NULL,
    at             INTEGER NOT NULL
) STRICT;

CREATE INDEX usage_by_account ON usage (account_id, at);
