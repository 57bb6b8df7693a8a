-- Stored responses. `sequence` is their order of age; it is assigned under one lock, because clocks differ. Response and
-- input are bytes, because they may contain zero bytes, which a text of PostgreSQL cannot.
CREATE TABLE responses (
    sequence   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         text   NOT NULL UNIQUE,
    account_id text   NOT NULL,
    stored_ms  bigint NOT NULL,
    response   bytea  NOT NULL,
    input      bytea  NOT NULL,
    -- The events of a streamed response but the last; NULL if it was not streamed, or if they were too long.
    events     bytea
);
CREATE INDEX responses_by_account ON responses (account_id, sequence);
CREATE INDEX responses_by_time ON responses (stored_ms);

-- The current time in milliseconds: `clock_ms` if it is given (in tests), or the server's, which all gateways share.
CREATE FUNCTION responses_now(clock_ms bigint) RETURNS bigint LANGUAGE sql STABLE
RETURN coalesce(clock_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint);

-- Deletes expired records. The lock is held until the end of the transaction: stores and sweeps run one at a time, and
-- each sees the records that the previous one has left.
CREATE FUNCTION sweep_responses(clock_ms bigint, retention_ms bigint) RETURNS void LANGUAGE plpgsql
SET lock_timeout = '2s'
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('responses', 0));
    DELETE FROM responses WHERE stored_ms <= responses_now(clock_ms) - retention_ms;
END
$$;

-- Inserts a record and evicts others above the limits. Returns false if the ID exists.
--
-- Sequential scans are disabled: between two vacuums most rows of the table are dead, which a scan reads again each time,
-- while an index marks its entries of dead rows and skips them.
CREATE FUNCTION store_response(
    new_id text, new_account_id text, new_response bytea, new_input bytea,
    new_events bytea, clock_ms bigint, retention_ms bigint, per_account bigint, in_all bigint
) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '2s'
SET enable_seqscan = off
AS $$
DECLARE
    too_many bigint;
BEGIN
    -- The commit does not wait for the disk; a crash of the server may lose the last responses.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM sweep_responses(clock_ms, retention_ms);
    INSERT INTO responses (id, account_id, stored_ms, response, input, events)
        VALUES (new_id, new_account_id, responses_now(clock_ms), new_response, new_input, new_events)
        ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Evicts all but the newest records of the account.
    DELETE FROM responses WHERE sequence IN
        (SELECT sequence FROM responses WHERE account_id = new_account_id
         ORDER BY sequence DESC OFFSET per_account);
    -- While there are too many records, evicts the oldest record of the account that has the most; among equals, of the
    -- account with the oldest record. So an account that stores without end displaces its own records, and not those of
    -- accounts with few.
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
