-- Stored responses. The sequence is their order of age: a clock can be set back. Its index by account
-- holds the sequence too, so evictions are worked out without touching the texts.
CREATE TABLE responses (
    sequence   INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    account_id TEXT NOT NULL,
    stored_ms  INTEGER NOT NULL,
    response   TEXT NOT NULL,
    input      TEXT NOT NULL
) STRICT;
CREATE INDEX responses_by_account ON responses (account_id);
CREATE INDEX responses_by_time ON responses (stored_ms);
