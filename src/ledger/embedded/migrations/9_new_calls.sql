-- Calls that have ended, until they are entered where they are looked for: among the calls, in the books, in
-- the sums of the day. Rows are added at the end, so that a charge touches one page of the file and not one of
-- every index.
CREATE TABLE new_calls (
    id              INTEGER PRIMARY KEY,
    request_id      TEXT NOT NULL,
    account_id      TEXT NOT NULL,
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
    prompt          INTEGER,
    cached          INTEGER,
    completion      INTEGER,
    reasoning       INTEGER,
    cost            INTEGER,
    balance_before  INTEGER,
    balance_after   INTEGER,
    attempts        TEXT,
    steps           TEXT,
    decision        TEXT,
    -- In the order in which they were paid.
    seq             INTEGER NOT NULL,
    -- What the charge left of grants: a grant and its rest a line; and what is owed since, where that changed.
    grants_left     TEXT,
    debt            INTEGER
) STRICT;

-- Sums were written up to a second after their calls: what a process that died had not written is added now.
INSERT OR REPLACE INTO usage_days
SELECT account_id, date(ended_ms / 1000, 'unixepoch') AS day, model, key_id, count(*), count(cost),
    coalesce(sum(prompt), 0), coalesce(sum(cached), 0), coalesce(sum(completion), 0),
    coalesce(sum(reasoning), 0), coalesce(sum(cost), 0), max(ended_ms)
FROM calls
WHERE ended_ms >= (SELECT coalesce(unixepoch(max(day), '-1 day') * 1000, 0) FROM usage_days)
GROUP BY account_id, day, model, key_id;
