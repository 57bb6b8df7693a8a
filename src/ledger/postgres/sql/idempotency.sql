-- Idempotency keys: at most one call with a key is charged. Steps of calls lock the account's row, so that its calls are
-- looked at one after the other.

-- Why a call with a key gets no hold: another call with it is running or was charged. NULL if nothing is in the way. A
-- batch is of one gateway, which runs one call of a key at a time, so holds of the same batch need not be looked at.
CREATE OR REPLACE FUNCTION key_refusal(step batch_step) RETURNS jsonb LANGUAGE sql AS $$
    SELECT CASE WHEN request_hash = step.request_hash THEN '{"refusal": "key_in_progress"}'::jsonb
        ELSE '{"refusal": "key_reused"}' END
    FROM (SELECT encode(request_hash, 'hex') AS request_hash FROM idempotent_responses
            WHERE account_id = step.account_id AND key = step.idempotency_key
                AND kept_until_ms > step.admitted_at * 1000
        UNION ALL
        SELECT request_hash FROM holds
            WHERE account_id = step.account_id AND idempotency_key = step.idempotency_key AND id <> step.call_id) AS taken
    LIMIT 1
$$;

-- Whether another call with the key was charged.
CREATE OR REPLACE FUNCTION is_key_spent(step batch_step) RETURNS boolean LANGUAGE sql AS $$
    SELECT EXISTS (SELECT 1 FROM idempotent_responses
        WHERE account_id = step.account_id AND key = step.idempotency_key AND call_id <> step.call_id
            AND kept_until_ms > (step.call ->> 'ended_at_ms')::bigint)
$$;

-- Stores the response of a charged call. One that is too old may still be there.
CREATE OR REPLACE FUNCTION store_idempotent_response(step batch_step) RETURNS void LANGUAGE sql AS $$
    INSERT INTO idempotent_responses (account_id, key, request_hash, call_id, stored_at_ms, kept_until_ms, stream,
        routed_model, body_bytes, body)
    VALUES (step.account_id, step.idempotency_key, decode(step.request_hash, 'hex'), step.call_id,
        (step.call ->> 'ended_at_ms')::bigint, step.response_until_ms, (step.call ->> 'stream')::boolean,
        nullif(step.call ->> 'routed_model', step.call ->> 'model'),
        coalesce(octet_length(step.response_body), 0), step.response_body)
    ON CONFLICT (account_id, key) DO UPDATE SET request_hash = excluded.request_hash, call_id = excluded.call_id,
        stored_at_ms = excluded.stored_at_ms, kept_until_ms = excluded.kept_until_ms, stream = excluded.stream,
        routed_model = excluded.routed_model, body_bytes = excluded.body_bytes, body = excluded.body
$$;

-- Deletes responses that are too old, and removes the bodies of the oldest while all take more than `p_most` bytes. Their
-- keys stay, so that a retry is not charged again. One gateway does it at a time; the others skip it.
CREATE OR REPLACE FUNCTION sweep_idempotent_responses(p_now_ms bigint, p_most bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('idempotent_responses', 0)) THEN
        RETURN;
    END IF;
    -- Rows that a charge is replacing are skipped, so that neither waits for the other.
    DELETE FROM idempotent_responses WHERE ctid = ANY (ARRAY(SELECT ctid FROM idempotent_responses
        WHERE kept_until_ms <= p_now_ms FOR UPDATE SKIP LOCKED));
    IF (SELECT sum(body_bytes) FROM idempotent_responses WHERE body IS NOT NULL) > p_most THEN
        UPDATE idempotent_responses SET body = NULL
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM idempotent_responses
            WHERE body IS NOT NULL AND stored_at_ms <= (
                SELECT max(stored_at_ms) FROM (
                    SELECT stored_at_ms, sum(body_bytes) OVER (ORDER BY stored_at_ms DESC) AS and_newer
                    FROM idempotent_responses WHERE body IS NOT NULL) AS sized
                WHERE and_newer > p_most)
            FOR UPDATE SKIP LOCKED));
    END IF;
END $$;

-- Records a request that got the response of another call, unless that call has many.
CREATE OR REPLACE FUNCTION record_replay(
    p_call_id bigint, p_account_id text, p_request_id text, p_kind text, p_at_ms bigint, p_most bigint
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO replays (call_id, account_id, request_id, kind, at_ms)
    SELECT p_call_id, p_account_id, p_request_id, p_kind, p_at_ms
    WHERE (SELECT count(*) FROM replays WHERE call_id = p_call_id) < p_most
$$;
