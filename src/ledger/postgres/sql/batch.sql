-- The day (UTC) on which a call ended, as `usage_days` has it.
CREATE OR REPLACE FUNCTION day_of(p_ms bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(to_timestamp(p_ms / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')
$$;

-- Inserts calls that have ended, and adds them to the sums of their days.
CREATE OR REPLACE FUNCTION insert_calls(p_calls jsonb[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH inserted AS (
        INSERT INTO calls SELECT * FROM jsonb_populate_recordset(NULL::calls, to_jsonb(p_calls))
        RETURNING account_id, key_id, project_id, model, ended_at_ms, prompt_tokens, cached_tokens, cache_write_tokens,
            completion_tokens, reasoning_tokens, cost_nano_usd, provider_cost_nano_usd)
    INSERT INTO usage_days AS sums (account_id, day, model, key_id, project_id, calls, charged_calls,
        prompt_tokens, cached_tokens, cache_write_tokens, completion_tokens, reasoning_tokens, cost_nano_usd, costed_calls,
        provider_cost_nano_usd, margin_nano_usd, last_ended_at_ms)
    SELECT account_id, day_of(ended_at_ms), model, key_id, coalesce(project_id, 'default'), count(*), count(cost_nano_usd),
        coalesce(sum(prompt_tokens), 0), coalesce(sum(cached_tokens), 0), coalesce(sum(cache_write_tokens), 0),
        coalesce(sum(completion_tokens), 0), coalesce(sum(reasoning_tokens), 0), coalesce(sum(cost_nano_usd), 0),
        count(provider_cost_nano_usd), coalesce(sum(provider_cost_nano_usd), 0),
        coalesce(sum(coalesce(cost_nano_usd, 0) - provider_cost_nano_usd), 0), max(ended_at_ms)
    FROM inserted GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
    ON CONFLICT (account_id, day, model, key_id, project_id) DO UPDATE SET calls = sums.calls + excluded.calls,
        charged_calls = sums.charged_calls + excluded.charged_calls,
        prompt_tokens = sums.prompt_tokens + excluded.prompt_tokens,
        cached_tokens = sums.cached_tokens + excluded.cached_tokens,
        cache_write_tokens = sums.cache_write_tokens + excluded.cache_write_tokens,
        completion_tokens = sums.completion_tokens + excluded.completion_tokens,
        reasoning_tokens = sums.reasoning_tokens + excluded.reasoning_tokens,
        cost_nano_usd = sums.cost_nano_usd + excluded.cost_nano_usd,
        costed_calls = sums.costed_calls + excluded.costed_calls,
        provider_cost_nano_usd = sums.provider_cost_nano_usd + excluded.provider_cost_nano_usd,
        margin_nano_usd = sums.margin_nano_usd + excluded.margin_nano_usd,
        last_ended_at_ms = greatest(sums.last_ended_at_ms, excluded.last_ended_at_ms);
END $$;

-- Executes a batch of operations on money. `p_steps` is a list of `batch_step`, in the order of account IDs so that no
-- two batches wait for each other. It commits without waiting for the disk; callers that need the disk flush
-- afterwards. Returns the server's incarnation and one reply for each step, in order.
--
-- A lane is one sequence of numbered batches. A batch that is sent again on a new connection has a new number: it waits
-- until the old one has ended, and an old one that arrives after it is refused. Every step can be repeated, because it
-- is identified by the call's number.
CREATE OR REPLACE FUNCTION execute_batch(
    p_run bigint, p_lane integer, p_number bigint, p_slot integer, p_epoch bigint, p_now bigint, p_steps jsonb
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    batch batch_context;
    steps batch_step[];
    step batch_step;
    valid_secrets text[];
    is_key_active boolean;
    locked accounts[];
    next_locked integer := 1;
    now_s bigint;
    present_id text;
    acc accounts;
    -- The budgets above the calls of this batch, and those of the present account.
    budgets_of_all budgets[] := '{}';
    counted budgets[] := '{}';
    new_budgets budgets[] := '{}';
    is_changed boolean := false;
    result step_result;
    replies jsonb[] := '{}';
    -- What is written at the end, in one statement for each table.
    new_accounts accounts[] := '{}';
    new_holds holds[] := '{}';
    new_calls jsonb[] := '{}';
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '1500', true),
        -- Prevents sequential scans of tables that were nearly empty when the planner's statistics were collected.
        set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),
        -- Plans are made once for each connection, not for each batch.
        set_config('plan_cache_mode', 'force_generic_plan', true);
    INSERT INTO lanes (run, lane, number) VALUES (p_run, p_lane, p_number)
    ON CONFLICT (run, lane) DO UPDATE SET number = p_number, at = now()
        WHERE lanes.number < p_number;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this batch was sent again' USING ERRCODE = '40001';
    END IF;
    steps := ARRAY(SELECT s FROM jsonb_populate_recordset(NULL::batch_step, p_steps) AS s);
    -- Read once for all: the batch was sent after its requests had arrived, so changes that were made before are seen.
    batch := (p_slot, p_epoch, EXISTS (SELECT 1 FROM gateways WHERE slot = p_slot AND epoch = p_epoch),
        (SELECT version FROM settings));
    now_s := present_second(p_now);
    valid_secrets := ARRAY(SELECT account_id || ' ' || id || ' ' || encode(secret, 'hex') FROM api_keys
        CROSS JOIN unnest(ARRAY[digest, CASE WHEN previous_until > now_s THEN previous_digest END]) AS secret
        WHERE state = 'active' AND id = ANY (ARRAY(SELECT key_id FROM unnest(steps)))
            AND (expires_at IS NULL OR expires_at > now_s) AND secret IS NOT NULL);
    locked := ARRAY(SELECT accounts FROM accounts
        WHERE id = ANY (ARRAY(SELECT account_id FROM unnest(steps))) ORDER BY id COLLATE "C" FOR UPDATE);
    -- Most accounts have none.
    IF EXISTS (SELECT 1 FROM unnest(locked) WHERE has_budgets) THEN
        budgets_of_all := budgets_above(locked, steps);
    END IF;
    now_s := present_second(p_now);

    FOREACH step IN ARRAY steps LOOP
        IF step.account_id IS DISTINCT FROM present_id THEN
            IF is_changed THEN
                new_accounts := array_append(new_accounts, acc);
            END IF;
            present_id := step.account_id;
            is_changed := false;
            acc := NULL;
            IF locked[next_locked].id = present_id THEN
                acc := locked[next_locked];
                next_locked := next_locked + 1;
                acc.latest_at := greatest(now_s, acc.latest_at);
            END IF;
            new_budgets := new_budgets || counted;
            counted := CASE WHEN acc.has_budgets THEN ARRAY(SELECT b FROM unnest(budgets_of_all) AS b
                WHERE (b).account_id = acc.id) ELSE '{}'::budgets[] END;
            -- Before a charge, once for each batch: the entries of expiries come before those of the batch.
            IF (acc.debt_nano_usd > 0 OR acc.funds[1].expires_at <= acc.latest_at)
                AND EXISTS (SELECT 1 FROM unnest(steps) WHERE account_id = present_id AND kind = 'charge')
            THEN
                acc := bring_up_to_date(acc);
                is_changed := true;
            END IF;
        END IF;

        is_key_active := coalesce(present_id || ' ' || step.key_id || ' ' || step.secret = ANY (valid_secrets), false);
        result := CASE
            WHEN step.renew THEN renew_hold(acc, counted, step, batch)
            WHEN step.kind = 'hold' THEN place_hold(acc, counted, step, batch, is_key_active)
            WHEN step.kind = 'extend' THEN extend_hold(acc, counted, step, batch, is_key_active)
            ELSE end_call(acc, counted, step)
        END;
        replies := array_append(replies, result.reply);
        IF result.new_call IS NOT NULL THEN
            new_calls := array_append(new_calls, result.new_call);
        ELSIF (result.new_hold).id IS NOT NULL THEN
            new_holds := array_append(new_holds, result.new_hold);
        END IF;
        IF (result.account).id IS NOT NULL AND NOT result.reply ? 'refusal' THEN
            acc := result.account;
            counted := coalesce(result.budgets, counted);
            is_changed := true;
        END IF;
    END LOOP;
    IF is_changed THEN
        new_accounts := array_append(new_accounts, acc);
    END IF;

    IF cardinality(new_accounts) > 0 THEN
        UPDATE accounts SET funds = new.funds, debt_nano_usd = new.debt_nano_usd,
            held_nano_usd = new.held_nano_usd, exposure_nano_usd = new.exposure_nano_usd,
            lapsed_at = new.lapsed_at, latest_at = new.latest_at
        FROM unnest(new_accounts) AS new WHERE accounts.id = new.id;
    END IF;
    new_budgets := new_budgets || counted;
    IF cardinality(new_budgets) > 0 THEN
        PERFORM write_budgets(new_budgets);
    END IF;
    IF cardinality(new_holds) > 0 THEN
        INSERT INTO holds SELECT * FROM unnest(new_holds);
    END IF;
    IF cardinality(new_calls) > 0 THEN
        PERFORM insert_calls(new_calls);
    END IF;
    RETURN jsonb_build_object('life', current_life(), 'replies', to_jsonb(replies));
END $$;
