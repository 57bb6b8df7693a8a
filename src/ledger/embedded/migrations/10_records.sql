-- What all calls of a transaction leave until they are entered becomes one value, which is cheaper to write than
-- thirty for each of them. What was written in columns is entered now.
DELETE FROM new_calls WHERE EXISTS (SELECT 1 FROM calls WHERE calls.id = new_calls.id);

INSERT INTO usage_days
SELECT account_id, date(ended_ms / 1000, 'unixepoch') AS day, model, key_id, count(*), count(cost),
    coalesce(sum(prompt), 0), coalesce(sum(cached), 0), coalesce(sum(completion), 0),
    coalesce(sum(reasoning), 0), coalesce(sum(cost), 0), max(ended_ms)
FROM new_calls WHERE true GROUP BY account_id, ended_ms / 86400000, model, key_id
ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, charged = charged + excluded.charged,
    prompt = prompt + excluded.prompt, cached = cached + excluded.cached,
    completion = completion + excluded.completion, reasoning = reasoning + excluded.reasoning,
    cost = cost + excluded.cost, last_ms = max(last_ms, excluded.last_ms);

INSERT INTO calls
SELECT id, request_id, account_id, key_id, model, routed_model, upstream, stream, outcome, failure,
    reserved_tokens, held, most, input_price, cached_price, output_price, admitted_ms, first_byte_ms, ended_ms,
    prompt, cached, completion, reasoning, cost, balance_before, balance_after, attempts, steps, decision
FROM new_calls ORDER BY id;

INSERT INTO ledger_entries (account_id, kind, ref, delta, balance_after, at)
SELECT account_id, 'charge', CAST(id AS TEXT), balance_after - balance_before, balance_after, ended_ms / 1000
FROM new_calls WHERE cost IS NOT NULL ORDER BY seq;

UPDATE accounts SET debt = newest.debt
FROM (SELECT account_id, debt, max(seq) FROM new_calls WHERE debt IS NOT NULL GROUP BY account_id) AS newest
WHERE newest.account_id = accounts.id;

-- A line says which grant, and what is left of it.
WITH lines AS (
    SELECT seq, line.value AS line, instr(line.value, ' ') AS space
    FROM new_calls, json_each('["' || replace(trim(grants_left, char(10)), char(10), '","') || '"]') AS line
    WHERE grants_left IS NOT NULL
)
UPDATE credit_grants SET remaining = newest.remaining
FROM (
    SELECT substr(line, 1, space - 1) AS grant_id, CAST(substr(line, space + 1) AS INTEGER) AS remaining,
        max(seq)
    FROM lines GROUP BY 1
) AS newest
WHERE newest.grant_id = credit_grants.id;

DROP TABLE new_calls;
CREATE TABLE new_calls (
    -- In the order in which they were paid.
    seq     INTEGER PRIMARY KEY,
    records BLOB NOT NULL
) STRICT;

-- What it checked with a list it checks with three comparisons, for which no table is made for every row. Lines are
-- never taken back, so that numbers rise by themselves.
CREATE TABLE entries (
    seq           INTEGER PRIMARY KEY,
    account_id    TEXT NOT NULL REFERENCES accounts (id),
    kind          TEXT NOT NULL CHECK (kind = 'charge' OR kind = 'grant' OR kind = 'expiry'),
    -- The grant, or the call.
    ref           TEXT NOT NULL,
    delta         INTEGER NOT NULL,
    -- The sum of this account's entries up to here.
    balance_after INTEGER NOT NULL,
    at            INTEGER NOT NULL
) STRICT;
INSERT INTO entries SELECT * FROM ledger_entries ORDER BY seq;
DROP TABLE ledger_entries;
ALTER TABLE entries RENAME TO ledger_entries;
CREATE INDEX ledger_entries_by_account ON ledger_entries (account_id, seq);
-- A grant is entered once; a call, because there is one row for it, with which it is entered.
CREATE UNIQUE INDEX ledger_entries_once ON ledger_entries (ref) WHERE kind = 'grant';
