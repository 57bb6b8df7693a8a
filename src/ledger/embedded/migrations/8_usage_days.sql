-- Calls added up: those of one key with one model on one day (UTC, `2026-11-16`). What is charged has
-- tokens and a cost; every call counts.
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

-- Calls of an outcome, newest first. Most are answered and found without it.
CREATE INDEX calls_by_outcome ON calls (outcome, ended_ms) WHERE outcome <> 'answered';
CREATE INDEX calls_by_account_and_outcome ON calls (account_id, outcome, ended_ms)
    WHERE outcome <> 'answered';

CREATE INDEX accounts_by_time ON accounts (created_at, id);
