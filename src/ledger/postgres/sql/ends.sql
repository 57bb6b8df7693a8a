-- Charges, releases and reversals: the steps that end a call.

-- Charges a call: paid from its hold, then from credit that is not held; the rest becomes debt.
CREATE OR REPLACE FUNCTION charge_call(
    acc accounts, counted budgets[], hold holds, step batch_step
) RETURNS step_result LANGUAGE plpgsql AS $$
DECLARE
    result step_result;
    cost bigint := (step.call ->> 'cost_nano_usd')::bigint;
    balance bigint;
    owed bigint := cost;
    -- Without a hold, budgets count the call where it was admitted.
    held_at bigint := coalesce(hold.held_at,
        least((step.call ->> 'admitted_at_ms')::bigint / 1000, acc.latest_at));
    fund fund;
    part grant_part;
    paid grant_part[] := '{}';
    at integer;
BEGIN
    IF acc.id IS NULL THEN
        RAISE EXCEPTION 'account % does not exist', step.account_id;
    END IF;
    balance := balance_of(acc) - cost;
    FOREACH part IN ARRAY coalesce(hold.parts, '{}') LOOP
        EXIT WHEN owed = 0;
        at := fund_position(acc.funds, part.grant_id);
        part.amount_nano_usd := least(part.amount_nano_usd, owed);
        acc.funds[at].remaining_nano_usd := acc.funds[at].remaining_nano_usd - part.amount_nano_usd;
        owed := owed - part.amount_nano_usd;
        paid := array_append(paid, part);
    END LOOP;
    FOR i IN 1..cardinality(acc.funds) LOOP
        EXIT WHEN owed = 0;
        fund := acc.funds[i];
        part := ROW(fund.grant_id, least(fund.remaining_nano_usd - fund.held_nano_usd, owed));
        IF part.amount_nano_usd > 0 AND fund.expires_at > acc.latest_at THEN
            acc.funds[i].remaining_nano_usd := fund.remaining_nano_usd - part.amount_nano_usd;
            owed := owed - part.amount_nano_usd;
            paid := array_append(paid, part);
        END IF;
    END LOOP;
    acc.debt_nano_usd := acc.debt_nano_usd + owed;
    acc.funds := without_used_up(acc.funds);
    result.account := acc;
    -- Drawn while the account is locked, so that its entries are in order.
    result.new_call := step.call || jsonb_build_object('entry_seq', nextval('entry_seqs'),
        'balance_after_nano_usd', balance, 'held_at', held_at,
        'detail', coalesce(step.call -> 'detail', '{}') || jsonb_build_object('paid', to_jsonb(paid)));
    IF step.idempotency_key IS NOT NULL THEN
        PERFORM store_idempotent_response(step);
    END IF;
    result.budgets := spend(counted, acc.id, step.call, held_at, cost);
    result.reply := jsonb_build_object('balance_before_nano_usd', balance + cost,
        'balance_after_nano_usd', balance, 'is_late', hold.id IS NULL);
    RETURN result;
END $$;

-- What a charge that is taken back returns to each grant: what was paid from it and, of the part that became debt and
-- that grants have paid since, as much as fits into their amounts. Grants that have not expired come first.
CREATE OR REPLACE FUNCTION returned_to_grants(acc accounts, p_paid grant_part[], p_paid_debt bigint)
RETURNS grant_part[] LANGUAGE plpgsql AS $$
DECLARE
    never constant bigint := 9223372036854775807;
    parts grant_part[] := p_paid;
    owed bigint := p_paid_debt;
    payer credit_grants;
    part bigint;
BEGIN
    FOR payer IN SELECT * FROM credit_grants WHERE account_id = acc.id AND owed > 0
        ORDER BY coalesce(expires_at, never) > acc.latest_at DESC, seq DESC
    LOOP
        EXIT WHEN owed = 0;
        -- At most the grant's amount, counting what it gets back already.
        part := least(owed, payer.amount_nano_usd
            - coalesce(acc.funds[fund_position(acc.funds, payer.id)].remaining_nano_usd, 0)
            - coalesce((SELECT sum(amount_nano_usd) FROM unnest(parts) WHERE grant_id = payer.id), 0));
        IF part > 0 THEN
            parts := parts || ROW(payer.id, part)::grant_part;
            owed := owed - part;
        END IF;
    END LOOP;
    RETURN parts;
END $$;

-- Takes back the charge of a call whose caller got an error. The charge moves to `ledger_entries`, because the call's
-- row has it no longer.
CREATE OR REPLACE FUNCTION reverse_charge(
    acc accounts, counted budgets[], ended calls, step batch_step
) RETURNS step_result LANGUAGE plpgsql AS $$
DECLARE
    never constant bigint := 9223372036854775807;
    result step_result;
    balance bigint := balance_of(acc) + ended.cost_nano_usd;
    paid grant_part[] := ARRAY(SELECT p FROM jsonb_populate_recordset(NULL::grant_part,
        ended.detail -> 'paid') AS p);
    owed bigint;
    reduced bigint;
    part grant_part;
    at integer;
BEGIN
    -- The part that became debt reduces the debt, or goes back to grants that have paid it since.
    owed := ended.cost_nano_usd - coalesce((SELECT sum(amount_nano_usd) FROM unnest(paid)), 0);
    reduced := least(owed, acc.debt_nano_usd);
    acc.debt_nano_usd := acc.debt_nano_usd - reduced;
    FOREACH part IN ARRAY returned_to_grants(acc, paid, owed - reduced) LOOP
        at := fund_position(acc.funds, part.grant_id);
        IF at IS NULL THEN
            acc.funds := add_fund(acc.funds, ROW(part.grant_id, part.amount_nano_usd, 0,
                (SELECT coalesce(expires_at, never) FROM credit_grants WHERE id = part.grant_id))::fund);
        ELSE
            acc.funds[at].remaining_nano_usd := acc.funds[at].remaining_nano_usd + part.amount_nano_usd;
        END IF;
    END LOOP;
    result.budgets := spend(counted, acc.id, step.call, ended.held_at, -ended.cost_nano_usd);
    UPDATE calls SET entry_seq = NULL, held_at = NULL, outcome = step.call ->> 'outcome', failure = step.call ->> 'failure',
        prompt_tokens = NULL, cached_tokens = NULL, cache_write_tokens = NULL, cache_write_1h_tokens = NULL,
        completion_tokens = NULL, reasoning_tokens = NULL, cost_nano_usd = NULL, balance_after_nano_usd = NULL,
        detail = nullif(detail - 'paid', '{}')
    WHERE id = ended.id;
    UPDATE usage_days SET charged_calls = charged_calls - 1, prompt_tokens = prompt_tokens - ended.prompt_tokens,
        cached_tokens = cached_tokens - ended.cached_tokens,
        cache_write_tokens = cache_write_tokens - ended.cache_write_tokens,
        completion_tokens = completion_tokens - ended.completion_tokens,
        reasoning_tokens = reasoning_tokens - ended.reasoning_tokens,
        cost_nano_usd = cost_nano_usd - ended.cost_nano_usd,
        margin_nano_usd = margin_nano_usd
            - CASE WHEN ended.provider_cost_nano_usd IS NULL THEN 0 ELSE ended.cost_nano_usd END
    WHERE account_id = ended.account_id AND day = day_of(ended.ended_at_ms) AND model = ended.model
        AND key_id = ended.key_id AND project_id = coalesce(ended.project_id, 'default');
    DELETE FROM idempotent_responses WHERE call_id = ended.id;
    INSERT INTO ledger_entries (seq, account_id, kind, ref, delta_nano_usd, balance_after_nano_usd, at)
    VALUES (ended.entry_seq, acc.id, 'charge', ended.id::text, -ended.cost_nano_usd, ended.balance_after_nano_usd,
        ended.ended_at_ms / 1000),
        (nextval('entry_seqs'), acc.id, 'reversal', ended.id::text, ended.cost_nano_usd, balance, acc.latest_at);
    result.account := acc;
    result.reply := '{}';
    RETURN result;
END $$;

-- Ends a call: releases its hold, and charges or stores it.
CREATE OR REPLACE FUNCTION end_call(
    acc accounts, counted budgets[], step batch_step
) RETURNS step_result LANGUAGE plpgsql AS $$
DECLARE
    result step_result;
    hold holds;
    ended calls;
BEGIN
    -- The hold stays: the gateway releases it next.
    IF step.kind = 'charge' AND step.idempotency_key IS NOT NULL AND is_key_spent(step) THEN
        result.account := acc;
        result.reply := '{"refusal": "key_spent"}';
        RETURN result;
    END IF;
    DELETE FROM holds WHERE id = step.call_id RETURNING * INTO hold;
    IF FOUND THEN
        acc := release_credit(acc, hold);
        counted := release_budgets(counted, hold);
    ELSIF step.kind <> 'cancel' THEN
        -- A call that has ended has a row. Without a row and without a hold, the hold was lost by a crash of the server
        -- or an expired lease, and the call ends all the same.
        SELECT * INTO ended FROM calls WHERE id = step.call_id;
        IF FOUND AND ended.cost_nano_usd IS NOT NULL AND step.kind = 'release' THEN
            RETURN reverse_charge(acc, counted, ended, step);
        ELSIF FOUND THEN
            result.account := acc;
            result.reply := CASE WHEN ended.cost_nano_usd IS NULL THEN '{"refusal": "hold"}'
                ELSE jsonb_build_object(
                    'balance_before_nano_usd', ended.balance_after_nano_usd + ended.cost_nano_usd,
                    'balance_after_nano_usd', ended.balance_after_nano_usd) END;
            RETURN result;
        END IF;
    END IF;
    IF step.kind = 'charge' THEN
        RETURN charge_call(acc, counted, hold, step);
    END IF;
    result.account := acc;
    result.budgets := counted;
    result.reply := '{}';
    IF step.kind = 'release' THEN
        result.new_call := step.call;
    END IF;
    RETURN result;
END $$;
