-- Stored responses. The sequence is their order of age, given under one lock: clocks differ. The
-- texts are bytes, because a text of PostgreSQL holds no zero byte and theirs may.
CREATE TABLE responses (
    sequence   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         text   NOT NULL UNIQUE,
    account_id text   NOT NULL,
    stored_ms  bigint NOT NULL,
    response   bytea  NOT NULL,
    input      bytea  NOT NULL
);
CREATE INDEX responses_by_account ON responses (account_id, sequence);
CREATE INDEX responses_by_time ON responses (stored_ms);

-- The server's time, which all gateways share, unless another is told.
CREATE FUNCTION responses_now(told_ms bigint) RETURNS bigint LANGUAGE sql STABLE
RETURN coalesce(told_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint);

-- Deletes what has expired. The lock is held until the end of the transaction: whoever adds or
-- takes away many does so alone, and sees what the one before has left.
CREATE FUNCTION sweep_responses(told_ms bigint, retention_ms bigint) RETURNS void LANGUAGE plpgsql
SET lock_timeout = '2s'
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('responses', 0));
    DELETE FROM responses WHERE stored_ms <= responses_now(told_ms) - retention_ms;
END
$$;

-- Inserts a record and deletes what has to go for it. False where its ID is taken.
--
-- Each step goes by an index, also where the planner would rather not: between two vacuums most of
-- the table is dead, and an index learns to pass over that.
CREATE FUNCTION store_response(
    new_id text, new_account_id text, new_response bytea, new_input bytea,
    told_ms bigint, retention_ms bigint, per_account bigint, in_all bigint
) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '2s'
SET enable_seqscan = off
AS $$
DECLARE
    too_many bigint;
BEGIN
    -- A power cut may take the last responses with it; nobody waits for the disk behind them.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM sweep_responses(told_ms, retention_ms);
    INSERT INTO responses (id, account_id, stored_ms, response, input)
        VALUES (new_id, new_account_id, responses_now(told_ms), new_response, new_input)
        ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Leaves the account its newest.
    DELETE FROM responses WHERE sequence IN
        (SELECT sequence FROM responses WHERE account_id = new_account_id
         ORDER BY sequence DESC OFFSET per_account);
    -- While there are too many, takes the oldest of the account that holds the most; of equals, of
    -- the one whose oldest is oldest. So whoever stores without end displaces their own, and nobody
    -- who holds a few.
    SELECT count(*) - in_all INTO too_many FROM responses;
    WHILE too_many > 0 LOOP
        DELETE FROM responses WHERE sequence =
            (SELECT min(sequence) FROM responses GROUP BY account_id
             ORDER BY count(*) DESC, min(sequence) LIMIT 1);
        too_many := too_many - 1;
    END LOOP;
    RETURN true;
END
$$;
