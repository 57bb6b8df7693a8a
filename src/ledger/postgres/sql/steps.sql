-- The number of the server's present incarnation; it changes with a crash.
CREATE OR REPLACE FUNCTION current_life() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    present bigint;
BEGIN
    SELECT life INTO present FROM lives;
    IF present IS NULL THEN
        INSERT INTO lives (life) VALUES ((random() * 9007199254740991)::bigint)
        ON CONFLICT DO NOTHING;
        SELECT life INTO present FROM lives;
    END IF;
    RETURN present;
END $$;

-- Flushes everything that was committed before to the disk: one flush for all that wait.
CREATE OR REPLACE FUNCTION flush_all() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM pg_logical_emit_message(true, 'tollgate', '');
    RETURN current_life();
END $$;

-- Brings an account up to the present time. Debt is paid from credit that is not held, the earliest expiry first. Of an
-- expired grant, running calls that were admitted before its expiry hold what they may cost beyond their holds; the
-- rest is forfeited. Posts entries for the expiries; the caller writes the account's row.
CREATE OR REPLACE FUNCTION brought_up_to_date(acc accounts, now_s bigint) RETURNS accounts LANGUAGE plpgsql AS $$
DECLARE
    i integer;
    taken bigint;
    total bigint := -acc.debt;
    live bigint := 0;
    running holds%ROWTYPE;
    promised bigint;
BEGIN
    FOR i IN 1..cardinality(acc.fund_ids) LOOP
        total := total + acc.fund_left[i];
        taken := least(acc.fund_left[i] - acc.fund_held[i], acc.debt);
        acc.fund_left[i] := acc.fund_left[i] - taken;
        acc.debt := acc.debt - taken;
    END LOOP;
    FOR i IN 1..cardinality(acc.fund_ids) LOOP
        IF acc.fund_expires[i] > now_s THEN
            live := live + acc.fund_left[i];
            CONTINUE;
        END IF;
        taken := acc.fund_left[i] - acc.fund_held[i];
        IF taken > 0 AND acc.exposure > 0 THEN
            FOR running IN SELECT * FROM holds WHERE account_id = acc.id AND risk > 0
                AND admitted_at < acc.fund_expires[i] ORDER BY id
            LOOP
                promised := least(running.risk, taken);
                EXIT WHEN promised = 0;
                UPDATE holds SET amount = amount + promised, risk = risk - promised,
                    parts_of = parts_of || acc.fund_ids[i], parts = parts || promised
                WHERE id = running.id;
                acc.held := acc.held + promised;
                acc.exposure := acc.exposure - promised;
                acc.fund_held[i] := acc.fund_held[i] + promised;
                taken := taken - promised;
            END LOOP;
        END IF;
        IF taken > 0 THEN
            total := total - taken;
            acc.fund_left[i] := acc.fund_left[i] - taken;
            acc.lapsed_at := greatest(acc.lapsed_at, acc.fund_expires[i]);
            INSERT INTO ledger_entries (account_id, kind, ref, delta, balance_after, at)
            VALUES (acc.id, 'expiry', acc.fund_ids[i], -taken, total, now_s);
        END IF;
    END LOOP;
    IF live - acc.debt > 0 THEN
        acc.lapsed_at := NULL;
    END IF;
    i := array_position(acc.fund_left, 0::bigint);
    WHILE i IS NOT NULL LOOP
        acc.fund_ids := acc.fund_ids[:i - 1] || acc.fund_ids[i + 1:];
        acc.fund_left := acc.fund_left[:i - 1] || acc.fund_left[i + 1:];
        acc.fund_held := acc.fund_held[:i - 1] || acc.fund_held[i + 1:];
        acc.fund_expires := acc.fund_expires[:i - 1] || acc.fund_expires[i + 1:];
        i := array_position(acc.fund_left, 0::bigint);
    END LOOP;
    acc.latest := now_s;
    RETURN acc;
END $$;

-- The day (UTC) on which a call ended, as `usage_days` has it.
CREATE OR REPLACE FUNCTION day_of(p_ms bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(to_timestamp(p_ms / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')
$$;

-- Executes a batch of operations on money. `p_groups` has the operations of each account, accounts in the order of
-- their IDs so that no two batches wait for each other. It commits without waiting for the disk; callers that need the
-- disk flush afterwards. Returns the server's incarnation and one reply for each operation, in order.
--
-- A lane is one sequence of numbered batches. A batch that is sent again on a new connection has a new number: it waits
-- until the old one has ended, and an old one that arrives after it is refused. Every operation can be repeated,
-- because it is identified by the call's number.
--
-- Operations: `h` hold, `e` extend, `c` charge, `f` release and store the call, `x` release and store nothing. A hold
-- or extension with `anew` is that of a running call after a crash or a lost lease: see below.
CREATE OR REPLACE FUNCTION take_steps(
    p_run bigint, p_lane integer, p_number bigint, p_slot integer, p_epoch bigint, p_now bigint,
    p_groups jsonb
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    never constant bigint := 9223372036854775807;
    answers jsonb[] := '{}';
    answer jsonb;
    is_alive boolean;
    settings_now bigint;
    clock bigint;
    of_account jsonb;
    steps jsonb;
    step jsonb;
    kind text;
    call_id bigint;
    -- The account, and its grants as parallel arrays.
    locked accounts[];
    next_locked integer := 1;
    acc accounts%ROWTYPE;
    found_account boolean;
    changed boolean;
    now_s bigint;
    ids text[];
    lefts bigint[];
    helds bigint[];
    ends bigint[];
    n integer;
    i integer;
    at integer;
    -- Sums over the grants.
    live_free bigint;
    live_left bigint;
    gone_free bigint;
    gone_held bigint;
    last_gone bigint;
    next_end bigint;
    owed bigint;
    available bigint;
    balance bigint;
    total bigint;
    before bigint;
    -- The operation.
    wanted bigint;
    worst bigint;
    overdraft bigint;
    exposed bigint;
    missing bigint;
    taken bigint;
    is_refused boolean;
    active_keys text[];
    key_active boolean;
    call_hold holds%ROWTYPE;
    found_hold boolean;
    ended calls%ROWTYPE;
    payer credit_grants%ROWTYPE;
    taken_of text[];
    taken_each bigint[];
    -- What is written at the end, in one statement for each table.
    new_accounts accounts[] := '{}';
    new_holds jsonb[] := '{}';
    new_calls jsonb[] := '{}';
    entry_accounts text[] := '{}';
    entry_kinds text[] := '{}';
    entry_refs text[] := '{}';
    entry_deltas bigint[] := '{}';
    entry_after bigint[] := '{}';
    entry_at bigint[] := '{}';
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
    is_alive := EXISTS (SELECT 1 FROM gateways WHERE slot = p_slot AND epoch = p_epoch);
    -- Read once for all: the batch was sent after its requests had arrived, so changes that were made before are seen.
    settings_now := (SELECT version FROM settings);
    active_keys := ARRAY(SELECT account_id || ' ' || id FROM api_keys
        WHERE state = 'active' AND id IN (
            SELECT step_of ->> 'key' FROM jsonb_array_elements(p_groups) AS one (of_one),
                jsonb_array_elements(of_one -> 's') AS two (step_of)
            WHERE step_of ? 'key'));

    locked := ARRAY(SELECT accounts FROM accounts
        WHERE id = ANY (ARRAY(SELECT value ->> 'a' FROM jsonb_array_elements(p_groups)))
        ORDER BY id COLLATE "C" FOR UPDATE);

    FOR of_account IN SELECT value FROM jsonb_array_elements(p_groups) LOOP
        acc := locked[next_locked];
        found_account := coalesce(acc.id = of_account ->> 'a', false);
        IF found_account THEN
            next_locked := next_locked + 1;
        ELSE
            acc := NULL;
        END IF;
        clock := coalesce(p_now, floor(extract(epoch FROM clock_timestamp()))::bigint);
        now_s := greatest(clock, acc.latest);
        -- Before a charge, once for each batch: the entries of expiries come before those of the batch.
        IF (acc.debt > 0 OR acc.fund_expires[1] <= now_s)
            AND of_account -> 's' @> '[{"k": "c"}]'
        THEN
            acc := brought_up_to_date(acc, now_s);
        END IF;
        changed := false;
        ids := acc.fund_ids;
        lefts := acc.fund_left;
        helds := acc.fund_held;
        ends := acc.fund_expires;
        n := coalesce(cardinality(ids), 0);
        total := -acc.debt;
        FOR i IN 1..n LOOP
            total := total + lefts[i];
        END LOOP;

        steps := of_account -> 's';
        FOR k IN 0..jsonb_array_length(steps) - 1 LOOP
            step := steps -> k;
            kind := step ->> 'k';
            call_id := (step ->> 'i')::bigint;

            IF kind = 'h' OR kind = 'e' THEN
                -- A disabled key pays for nothing more, however recently it was looked up.
                key_active := (of_account ->> 'a') || ' ' || (step ->> 'key') = ANY (active_keys);
                found_hold := false;
                IF kind = 'e' OR step ? 'again' THEN
                    SELECT * INTO call_hold FROM holds WHERE id = call_id;
                    found_hold := FOUND;
                END IF;
                -- The gateway reports that this call is running. If its hold exists, the present lease takes it over
                -- and it is raised to the acknowledged amount; if it is gone it is placed again, unless the call has
                -- ended meanwhile.
                IF step ? 'anew' THEN
                    IF NOT found_hold AND EXISTS (SELECT 1 FROM calls WHERE id = call_id) THEN
                        answers := array_append(answers, '{"no": "hold"}'::jsonb);
                        CONTINUE;
                    END IF;
                    IF found_hold AND is_alive THEN
                        UPDATE holds SET slot = p_slot, epoch = p_epoch WHERE id = call_id;
                    END IF;
                    kind := CASE WHEN found_hold THEN 'e' ELSE 'h' END;
                    key_active := true;
                END IF;
                IF kind = 'h' AND found_hold THEN
                    at := array_position(ids, call_hold.parts_of[1]);
                    answers := array_append(answers, jsonb_build_object('expires', nullif(ends[at], never)));
                    CONTINUE;
                END IF;
                answer := CASE
                    WHEN NOT key_active THEN '{"no": "key"}'
                    WHEN NOT found_account THEN '{"no": "account", "balance": 0}'
                    WHEN kind = 'e' AND NOT found_hold THEN '{"no": "hold"}'
                    WHEN NOT is_alive THEN '{"no": "lease"}'
                    WHEN kind = 'h' AND NOT step ? 'anew' AND (settings_now <> (step ->> 's')::bigint
                        OR acc.version <> (step ->> 'v')::bigint) THEN '{"no": "stale"}'
                END;
                IF answer IS NOT NULL THEN
                    answers := array_append(answers, answer);
                    CONTINUE;
                END IF;

                live_free := 0;
                live_left := 0;
                gone_free := 0;
                gone_held := 0;
                last_gone := NULL;
                next_end := NULL;
                FOR i IN 1..n LOOP
                    taken := lefts[i] - helds[i];
                    IF ends[i] > now_s THEN
                        IF taken > 0 AND live_free = 0 THEN
                            next_end := nullif(ends[i], never);
                        END IF;
                        live_left := live_left + lefts[i];
                        live_free := live_free + taken;
                    ELSE
                        gone_free := gone_free + taken;
                        gone_held := gone_held + helds[i];
                        last_gone := greatest(last_gone, ends[i]);
                    END IF;
                END LOOP;
                owed := greatest(acc.debt - gone_free, 0);
                available := live_free - owed;
                balance := live_left + gone_held - owed;

                IF acc.closed THEN
                    answers := array_append(answers, jsonb_build_object('no', 'account', 'balance', balance));
                    CONTINUE;
                END IF;
                IF acc.frozen THEN
                    answers := array_append(answers, '{"no": "frozen"}'::jsonb);
                    CONTINUE;
                END IF;
                wanted := (step ->> 'n')::bigint;
                worst := (step ->> 'w')::bigint;
                overdraft := (step ->> 'o')::bigint;
                IF kind = 'h' THEN
                    missing := wanted;
                    exposed := greatest(worst - wanted, 0);
                    is_refused := available <= 0 OR available < wanted
                        OR acc.exposure::numeric + exposed > available::numeric - wanted + overdraft;
                    taken_of := '{}';
                    taken_each := '{}';
                ELSE
                    wanted := greatest(wanted, call_hold.amount);
                    missing := wanted - call_hold.amount;
                    exposed := greatest(worst - wanted, 0);
                    is_refused := (missing > 0 AND available < missing)
                        OR acc.exposure::numeric - call_hold.risk + exposed
                            > available::numeric - missing + overdraft;
                    taken_of := call_hold.parts_of;
                    taken_each := call_hold.parts;
                END IF;
                IF is_refused THEN
                    -- Distinguishes credit that has expired from credit that was spent; expired credit that pays debt
                    -- counts as spent.
                    IF gone_free <= acc.debt THEN
                        last_gone := NULL;
                    END IF;
                    answers := array_append(answers, jsonb_build_object('no', 'short', 'balance', balance,
                        'available', available, 'held', acc.held, 'exposure', acc.exposure,
                        'usable', live_left - owed, 'expired',
                        CASE WHEN live_left - owed <= 0 THEN coalesce(last_gone, acc.lapsed_at) END));
                    CONTINUE;
                END IF;
                FOR i IN 1..n LOOP
                    EXIT WHEN missing = 0;
                    taken := least(lefts[i] - helds[i], missing);
                    IF taken > 0 AND ends[i] > now_s THEN
                        helds[i] := helds[i] + taken;
                        taken_of := taken_of || ids[i];
                        taken_each := taken_each || taken;
                        missing := missing - taken;
                    END IF;
                END LOOP;
                changed := true;
                IF kind = 'h' THEN
                    acc.held := acc.held + wanted;
                    acc.exposure := acc.exposure + exposed;
                    new_holds := array_append(new_holds, jsonb_build_object('id', call_id,
                        'account_id', acc.id, 'slot', p_slot, 'epoch', p_epoch, 'amount', wanted,
                        'risk', exposed, 'admitted_at',
                        CASE WHEN step ? 'anew' THEN least((step ->> 't')::bigint, now_s) ELSE now_s END,
                        'parts_of', taken_of, 'parts', taken_each,
                        'model', step -> 'm', 'places', step -> 'p'));
                    answers := array_append(answers, jsonb_build_object('expires', next_end));
                ELSE
                    acc.held := acc.held + wanted - call_hold.amount;
                    acc.exposure := acc.exposure + exposed - call_hold.risk;
                    UPDATE holds SET amount = wanted, risk = exposed, parts_of = taken_of,
                        parts = taken_each,
                        places = ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(step -> 'p'))
                    WHERE id = call_id;
                    answers := array_append(answers, '{}'::jsonb);
                END IF;
                CONTINUE;
            END IF;

            -- The other operations end a call.
            DELETE FROM holds WHERE id = call_id RETURNING * INTO call_hold;
            found_hold := FOUND;
            changed := true;
            IF found_hold THEN
                acc.held := acc.held - call_hold.amount;
                acc.exposure := acc.exposure - call_hold.risk;
                FOR i IN 1..cardinality(call_hold.parts) LOOP
                    at := array_position(ids, call_hold.parts_of[i]);
                    helds[at] := helds[at] - call_hold.parts[i];
                END LOOP;
            ELSE
                call_hold.parts := '{}';
            END IF;
            IF kind = 'x' THEN
                answers := array_append(answers, '{}'::jsonb);
                CONTINUE;
            END IF;
            -- A call that has ended has a row. Without a row and without a hold, the hold was lost by a crash of the
            -- server or an expired lease, and the call ends all the same.
            IF NOT found_hold THEN
                SELECT * INTO ended FROM calls WHERE id = call_id;
                IF FOUND AND ended.cost IS NULL THEN
                    answers := array_append(answers, '{"no": "hold"}'::jsonb);
                    CONTINUE;
                ELSIF FOUND AND kind = 'c' THEN
                    answers := array_append(answers, jsonb_build_object('cost', ended.cost,
                        'before', ended.balance_before, 'after', ended.balance_after));
                    CONTINUE;
                ELSIF FOUND THEN
                    -- It was charged, and its caller got an error: the charge is taken back.
                    owed := ended.cost;
                    taken_of := coalesce(ended.paid_from, '{}');
                    taken_each := coalesce(ended.paid, '{}');
                    FOR i IN 1..cardinality(taken_each) LOOP
                        owed := owed - taken_each[i];
                    END LOOP;
                    -- The part that became debt reduces the debt, or goes back to grants that have paid it since.
                    taken := least(owed, acc.debt);
                    acc.debt := acc.debt - taken;
                    owed := owed - taken;
                    FOR payer IN SELECT * FROM credit_grants WHERE account_id = acc.id
                        ORDER BY coalesce(expires_at, never) > now_s DESC, seq DESC
                    LOOP
                        EXIT WHEN owed = 0;
                        -- At most the grant's amount, counting what it gets back already.
                        at := array_position(ids, payer.id);
                        taken := least(owed, payer.amount - coalesce(lefts[at], 0) - coalesce((
                            SELECT sum(part) FROM unnest(taken_of, taken_each) AS back (of_grant, part)
                            WHERE of_grant = payer.id), 0));
                        IF taken > 0 THEN
                            taken_of := taken_of || payer.id;
                            taken_each := taken_each || taken;
                            owed := owed - taken;
                        END IF;
                    END LOOP;
                    FOR i IN 1..cardinality(taken_each) LOOP
                        at := array_position(ids, taken_of[i]);
                        IF at IS NULL THEN
                            next_end := (SELECT coalesce(expires_at, never) FROM credit_grants
                                WHERE id = taken_of[i]);
                            at := 1;
                            WHILE at <= n AND ends[at] <= next_end LOOP
                                at := at + 1;
                            END LOOP;
                            ids := ids[:at - 1] || taken_of[i] || ids[at:];
                            lefts := lefts[:at - 1] || 0::bigint || lefts[at:];
                            helds := helds[:at - 1] || 0::bigint || helds[at:];
                            ends := ends[:at - 1] || next_end || ends[at:];
                            n := n + 1;
                        END IF;
                        lefts[at] := lefts[at] + taken_each[i];
                    END LOOP;
                    total := total + ended.cost;
                    UPDATE calls SET outcome = step #>> '{call,outcome}',
                        failure = step #>> '{call,failure}', prompt = NULL, cached = NULL,
                        cache_write = NULL, cache_write_1h = NULL,
                        completion = NULL, reasoning = NULL, cost = NULL, balance_before = NULL,
                        balance_after = NULL, paid_from = NULL, paid = NULL
                    WHERE id = call_id;
                    UPDATE usage_days SET charged = charged - 1, prompt = prompt - ended.prompt,
                        cached = cached - ended.cached, completion = completion - ended.completion,
                        reasoning = reasoning - ended.reasoning, cost = cost - ended.cost
                    WHERE account_id = ended.account_id AND day = day_of(ended.ended_ms)
                        AND model = ended.model AND key_id = ended.key_id;
                    entry_accounts := array_append(entry_accounts, acc.id);
                    entry_kinds := array_append(entry_kinds, 'reversal');
                    entry_refs := array_append(entry_refs, call_id::text);
                    entry_deltas := array_append(entry_deltas, ended.cost);
                    entry_after := array_append(entry_after, total);
                    entry_at := array_append(entry_at, now_s);
                    answers := array_append(answers, '{"reversed": true}'::jsonb);
                    CONTINUE;
                END IF;
            END IF;
            IF kind = 'f' THEN
                new_calls := array_append(new_calls, step -> 'call');
                answers := array_append(answers, '{}'::jsonb);
                CONTINUE;
            END IF;

            -- A charge: paid from the call's hold, then from credit that is not held; the rest becomes debt.
            before := total;
            owed := (step ->> 'n')::bigint;
            total := total - owed;
            taken_of := '{}';
            taken_each := '{}';
            FOR i IN 1..cardinality(call_hold.parts) LOOP
                EXIT WHEN owed = 0;
                taken := least(call_hold.parts[i], owed);
                at := array_position(ids, call_hold.parts_of[i]);
                lefts[at] := lefts[at] - taken;
                owed := owed - taken;
                taken_of := taken_of || ids[at];
                taken_each := taken_each || taken;
            END LOOP;
            FOR i IN 1..n LOOP
                EXIT WHEN owed = 0;
                taken := least(lefts[i] - helds[i], owed);
                IF taken > 0 AND ends[i] > now_s THEN
                    lefts[i] := lefts[i] - taken;
                    owed := owed - taken;
                    taken_of := taken_of || ids[i];
                    taken_each := taken_each || taken;
                END IF;
            END LOOP;
            acc.debt := acc.debt + owed;
            -- Removes used-up grants.
            at := array_position(lefts, 0::bigint);
            WHILE at IS NOT NULL LOOP
                ids := ids[:at - 1] || ids[at + 1:];
                lefts := lefts[:at - 1] || lefts[at + 1:];
                helds := helds[:at - 1] || helds[at + 1:];
                ends := ends[:at - 1] || ends[at + 1:];
                n := n - 1;
                at := array_position(lefts, 0::bigint);
            END LOOP;
            new_calls := array_append(new_calls, step -> 'call' || jsonb_build_object(
                'balance_before', before, 'balance_after', total,
                'paid_from', taken_of, 'paid', taken_each));
            entry_accounts := array_append(entry_accounts, acc.id);
            entry_kinds := array_append(entry_kinds, 'charge');
            entry_refs := array_append(entry_refs, call_id::text);
            entry_deltas := array_append(entry_deltas, total - before);
            entry_after := array_append(entry_after, total);
            entry_at := array_append(entry_at, now_s);
            answers := array_append(answers, jsonb_build_object('cost', before - total,
                'before', before, 'after', total, 'late', NOT found_hold));
        END LOOP;

        IF changed AND found_account THEN
            acc.fund_ids := ids;
            acc.fund_left := lefts;
            acc.fund_held := helds;
            acc.fund_expires := ends;
            acc.latest := now_s;
            new_accounts := array_append(new_accounts, acc);
        END IF;
    END LOOP;

    IF cardinality(new_accounts) > 0 THEN
        UPDATE accounts SET fund_ids = new.fund_ids, fund_left = new.fund_left,
            fund_held = new.fund_held, fund_expires = new.fund_expires, debt = new.debt,
            held = new.held, exposure = new.exposure, lapsed_at = new.lapsed_at, latest = new.latest
        FROM unnest(new_accounts) AS new WHERE accounts.id = new.id;
    END IF;
    IF cardinality(new_holds) > 0 THEN
        INSERT INTO holds SELECT * FROM jsonb_populate_recordset(NULL::holds, to_jsonb(new_holds));
    END IF;
    IF cardinality(new_calls) > 0 THEN
        WITH written AS (
            INSERT INTO calls SELECT * FROM jsonb_populate_recordset(NULL::calls, to_jsonb(new_calls))
            RETURNING account_id, key_id, model, ended_ms, prompt, cached, completion, reasoning, cost)
        INSERT INTO usage_days AS sums (account_id, day, model, key_id, calls, charged, prompt, cached,
            completion, reasoning, cost, last_ms)
        SELECT account_id, day_of(ended_ms), model, key_id, count(*), count(cost),
            coalesce(sum(prompt), 0), coalesce(sum(cached), 0), coalesce(sum(completion), 0),
            coalesce(sum(reasoning), 0), coalesce(sum(cost), 0), max(ended_ms)
        FROM written GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
        ON CONFLICT (account_id, day, model, key_id) DO UPDATE SET calls = sums.calls + excluded.calls,
            charged = sums.charged + excluded.charged, prompt = sums.prompt + excluded.prompt,
            cached = sums.cached + excluded.cached, completion = sums.completion + excluded.completion,
            reasoning = sums.reasoning + excluded.reasoning, cost = sums.cost + excluded.cost,
            last_ms = greatest(sums.last_ms, excluded.last_ms);
    END IF;
    IF cardinality(entry_refs) > 0 THEN
        INSERT INTO ledger_entries (account_id, kind, ref, delta, balance_after, at)
        SELECT * FROM unnest(entry_accounts, entry_kinds, entry_refs, entry_deltas, entry_after, entry_at);
    END IF;
    RETURN jsonb_build_object('life', current_life(), 'answers', to_jsonb(answers));
END $$;
