-- Calls of one account that followed each other are one row, and a charge's line in the books is the record of its
-- call: a row for every call, a line for every charge and their indexes took more than all else that was done for one.
-- `upgrade.rs` puts in what there was before.
CREATE TABLE call_blocks (
    -- The number of its last call, in the order in which they were paid. Lines of the books have theirs from the same
    -- count.
    seq        INTEGER PRIMARY KEY,
    account_id TEXT NOT NULL,
    calls      INTEGER NOT NULL,
    charges    INTEGER NOT NULL,
    first_id   INTEGER NOT NULL,
    last_id    INTEGER NOT NULL,
    -- When the first and the last of them ended.
    first_ms   INTEGER NOT NULL,
    last_ms    INTEGER NOT NULL,
    -- How many were not answered, and how many had several steps.
    odd        INTEGER NOT NULL,
    stepped    INTEGER NOT NULL,
    -- One behind the other, in the order in which they were paid.
    records    BLOB NOT NULL
) STRICT;
CREATE INDEX blocks_by_id ON call_blocks (first_id, last_id);
CREATE INDEX blocks_by_time ON call_blocks (last_ms);
CREATE INDEX blocks_by_account ON call_blocks (account_id, last_ms);
CREATE INDEX blocks_in_books ON call_blocks (account_id, seq) WHERE charges > 0;
CREATE INDEX odd_blocks_by_time ON call_blocks (last_ms) WHERE odd > 0;
CREATE INDEX odd_blocks_by_account ON call_blocks (account_id, last_ms) WHERE odd > 0;
CREATE INDEX stepped_blocks ON call_blocks (first_id, last_id) WHERE stepped > 0;

-- Calls whose client was told to quote an ID that does not say when the call was begun: mostly one of its own.
CREATE TABLE call_names (
    request_id TEXT NOT NULL,
    id         INTEGER NOT NULL,
    PRIMARY KEY (request_id, id)
) STRICT, WITHOUT ROWID;
