-- When an expiry left the account with nothing; empty once it was given more.
ALTER TABLE accounts ADD COLUMN lapsed_at INTEGER;

-- The operator's own number for a payment: the same one gives credit once.
ALTER TABLE credit_grants ADD COLUMN reference TEXT;
CREATE UNIQUE INDEX credit_grants_once ON credit_grants (account_id, reference);

-- What an expiry took is entered in the books too.
CREATE TABLE entries (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id    TEXT NOT NULL REFERENCES accounts (id),
    kind          TEXT NOT NULL CHECK (kind IN ('grant', 'charge', 'expiry')),
    -- The grant, or the call.
    ref           TEXT NOT NULL,
    delta         INTEGER NOT NULL,
    -- The sum of this account's entries up to here.
    balance_after INTEGER NOT NULL,
    at            INTEGER NOT NULL
) STRICT;

-- Credit from before there were books is entered now; and each balance is the sum up to its entry, the
-- credit that has expired since then still in it.
INSERT INTO ledger_entries (account_id, kind, ref, delta, balance_after, at)
SELECT account_id, 'grant', id, amount, 0, created_at FROM credit_grants
WHERE id NOT IN (SELECT ref FROM ledger_entries WHERE kind = 'grant') ORDER BY rowid;
INSERT INTO entries
SELECT seq, account_id, kind, ref, delta,
    sum(delta) OVER (PARTITION BY account_id ORDER BY seq), at
FROM ledger_entries;
DROP TABLE ledger_entries;
ALTER TABLE entries RENAME TO ledger_entries;

CREATE INDEX ledger_entries_by_account ON ledger_entries (account_id, seq);
-- A grant and a call are entered once; a grant can expire in parts.
CREATE UNIQUE INDEX ledger_entries_once ON ledger_entries (ref, kind) WHERE kind <> 'expiry';

-- One row for each call that was admitted, whatever became of it. Times are milliseconds since 1970,
-- prices trillionths of a US dollar a token, amounts billionths of a US dollar.
CREATE TABLE calls (
    id              INTEGER PRIMARY KEY,
    -- What the client was told to quote; it may repeat itself.
    request_id      TEXT NOT NULL,
    account_id      TEXT NOT NULL REFERENCES accounts (id),
    key_id          TEXT NOT NULL,
    model           TEXT NOT NULL,
    routed_model    TEXT NOT NULL,
    upstream        TEXT,
    stream          INTEGER NOT NULL,
    outcome         TEXT NOT NULL,
    failure         TEXT,
    reserved_tokens INTEGER NOT NULL,
    held            INTEGER NOT NULL,
    most            INTEGER NOT NULL,
    input_price     INTEGER NOT NULL,
    cached_price    INTEGER NOT NULL,
    output_price    INTEGER NOT NULL,
    admitted_ms     INTEGER NOT NULL,
    first_byte_ms   INTEGER,
    ended_ms        INTEGER NOT NULL,
    -- Empty where nothing was charged.
    prompt          INTEGER,
    cached          INTEGER,
    completion      INTEGER,
    reasoning       INTEGER,
    cost            INTEGER,
    balance_before  INTEGER,
    balance_after   INTEGER
) STRICT;

CREATE INDEX calls_by_request ON calls (request_id);

INSERT INTO calls
SELECT row_number() OVER (ORDER BY usage.rowid), usage.id, usage.account_id, key_id, model,
    routed_model, NULL, stream, 'answered', NULL, 0, 0, 0, input_price, cached_price, output_price,
    usage.at * 1000, NULL, usage.at * 1000, prompt, cached, completion, reasoning, cost,
    entry.balance_after + cost, entry.balance_after
FROM usage JOIN ledger_entries AS entry ON entry.ref = usage.id AND entry.kind = 'charge';
UPDATE ledger_entries
SET ref = (SELECT calls.id FROM calls WHERE calls.request_id = ref)
WHERE kind = 'charge';
DROP TABLE usage;

CREATE INDEX calls_by_account ON calls (account_id, ended_ms);
CREATE INDEX calls_by_time ON calls (ended_ms);
