-- Stored responses. `sequence` is their order of age, because a clock can be set back. The index by account contains the
-- sequence too (it is the rowid), so evictions are computed without reading the texts.
CREATE TABLE responses (
    sequence   INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    account_id TEXT NOT NULL,
    stored_ms  INTEGER NOT NULL,
    response   TEXT NOT NULL,
    input      TEXT NOT NULL,
    -- The events of a streamed response but the last; NULL if it was not streamed, or if they were too long.
    events     TEXT
) STRICT;
CREATE INDEX responses_by_account ON responses (account_id);
CREATE INDEX responses_by_time ON responses (stored_ms);
