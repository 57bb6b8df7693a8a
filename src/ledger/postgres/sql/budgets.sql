-- Budgets: what calls take of those above them, in the steps of a batch. The account is locked meanwhile, so no budget of
-- it changes otherwise.

-- Whether a budget stands above the calls of a payer.
CREATE OR REPLACE FUNCTION is_above(budget budgets, p_key text, p_project text, p_member text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(CASE budget.scope
        WHEN 'account' THEN true
        WHEN 'project' THEN budget.scope_id = coalesce(p_project, 'default')
        WHEN 'member' THEN budget.scope_id = p_member
        WHEN 'key' THEN budget.scope_id = p_key
    END, false)
$$;

-- The first day of the period that a day is in.
CREATE OR REPLACE FUNCTION first_day_of_period(p_day date, p_period text, p_anchor integer) RETURNS date
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_period
        WHEN 'week' THEN p_day - (extract(isodow FROM p_day)::integer - p_anchor + 7) % 7
        WHEN 'month' THEN date_trunc('month', (p_day - (p_anchor - 1))::timestamp)::date + (p_anchor - 1)
        ELSE p_day
    END
$$;

-- Midnight of a day. Where a change of the clock repeats it, the later one; where it leaves it out, the moment of the
-- change.
CREATE OR REPLACE FUNCTION midnight(p_day date, p_timezone text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT extract(epoch FROM p_day::timestamp AT TIME ZONE p_timezone)::bigint
$$;

-- Begins the period that a time is in, unless the budget has come to it. What runs is counted where it was held.
CREATE OR REPLACE FUNCTION turned_to(budget budgets, p_at bigint) RETURNS budgets LANGUAGE plpgsql STABLE AS $$
DECLARE
    anchor integer := coalesce(budget.anchor, 1);
    first date;
    next date;
BEGIN
    IF p_at < budget.period_end THEN
        RETURN budget;
    END IF;
    budget.spent_nano_usd := 0;
    budget.held_nano_usd := 0;
    budget.exposure_nano_usd := 0;
    IF budget.period = 'total' THEN
        budget.period_start := budget.created_at;
        budget.period_end := 9223372036854775807;
        RETURN budget;
    END IF;
    first := first_day_of_period((to_timestamp(p_at) AT TIME ZONE budget.timezone)::date, budget.period, anchor);
    -- A repeated hour before the later midnight belongs to the day before.
    IF midnight(first, budget.timezone) > p_at THEN
        first := first_day_of_period(first - 1, budget.period, anchor);
    END IF;
    next := CASE budget.period
        WHEN 'week' THEN first + 7
        WHEN 'month' THEN (first + interval '1 month')::date
        ELSE first + 1
    END;
    budget.period_start := midnight(first, budget.timezone);
    budget.period_end := midnight(next, budget.timezone);
    RETURN budget;
END $$;

-- The end of the period that a time is in.
CREATE OR REPLACE FUNCTION period_end_of(p_period text, p_timezone text, p_anchor bigint, p_at bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT (turned_to(jsonb_populate_record(NULL::budgets, jsonb_build_object('period', p_period, 'timezone', p_timezone,
        'anchor', p_anchor, 'period_end', p_at)), p_at)).period_end
$$;

-- The budgets above the calls of a batch: by what the steps say, and by the holds that they end.
CREATE OR REPLACE FUNCTION budgets_above(p_accounts accounts[], p_steps batch_step[]) RETURNS budgets[]
LANGUAGE sql STABLE AS $$
    WITH payers AS (
        SELECT key_id, project_id, member_id FROM unnest(p_steps) WHERE key_id IS NOT NULL
        UNION SELECT call ->> 'key_id', call ->> 'project_id', call ->> 'member_id' FROM unnest(p_steps)
            WHERE call IS NOT NULL
        UNION SELECT key_id, project_id, member_id FROM holds
            WHERE id = ANY (ARRAY(SELECT call_id FROM unnest(p_steps)))
    ), places AS (
        SELECT id AS place FROM unnest(p_accounts)
        UNION SELECT coalesce(project_id, 'default') FROM payers
        UNION SELECT member_id FROM payers WHERE member_id IS NOT NULL
        UNION SELECT key_id FROM payers
    )
    SELECT ARRAY(SELECT budgets FROM budgets
        WHERE account_id = ANY (ARRAY(SELECT id FROM unnest(p_accounts) WHERE has_budgets))
            AND scope_id = ANY (ARRAY(SELECT place FROM places)))
$$;

-- The figures of a budget that has no room for a call.
CREATE OR REPLACE FUNCTION budget_shortage(budget budgets) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('id', budget.id, 'scope', budget.scope, 'scope_id', budget.scope_id,
        'name', budget.name, 'amount_nano_usd', budget.amount_nano_usd, 'period', budget.period,
        'spent_nano_usd', budget.spent_nano_usd, 'held_nano_usd', budget.held_nano_usd,
        'exposure_nano_usd', budget.exposure_nano_usd,
        'resets_at', nullif(budget.period_end, 9223372036854775807))
$$;

-- Takes an amount and a risk for a call of all budgets above it, in place of what its hold has taken; `held_at` of a new
-- one is NULL. All of it must fit into the hard ones: amounts, and what running calls may cost beyond them. Returns the
-- budgets, or the refusal.
CREATE OR REPLACE FUNCTION take_of_budgets(
    counted budgets[], hold holds, p_amount bigint, p_risk bigint, p_held_at bigint, p_overdraft bigint
) RETURNS step_result LANGUAGE plpgsql STABLE AS $$
DECLARE
    result step_result;
    budget budgets;
    before bigint;
    risk_before bigint;
    room bigint;
    refused jsonb := '[]';
BEGIN
    FOR i IN 1..cardinality(counted) LOOP
        CONTINUE WHEN counted[i].account_id <> hold.account_id
            OR NOT is_above(counted[i], hold.key_id, hold.project_id, hold.member_id);
        budget := turned_to(counted[i], p_held_at);
        -- A call of an earlier period, whose hold is renewed.
        CONTINUE WHEN p_held_at < budget.period_start;
        before := 0;
        risk_before := 0;
        IF hold.held_at >= budget.period_start THEN
            before := hold.counted_nano_usd;
            risk_before := hold.counted_risk_nano_usd;
        END IF;
        room := budget.amount_nano_usd - budget.spent_nano_usd - (budget.held_nano_usd - before);
        IF budget.hard AND (
            ((hold.held_at IS NULL OR p_amount > before) AND (room <= before OR room < p_amount))
            OR budget.exposure_nano_usd::numeric - risk_before + p_risk > room::numeric - p_amount + p_overdraft)
        THEN
            refused := refused || budget_shortage(budget);
        END IF;
        budget.held_nano_usd := budget.held_nano_usd - before + p_amount;
        budget.exposure_nano_usd := budget.exposure_nano_usd - risk_before + p_risk;
        counted[i] := budget;
    END LOOP;
    IF jsonb_array_length(refused) > 0 THEN
        result.reply := jsonb_build_object('refusal', 'budget', 'budgets', refused);
    ELSE
        result.budgets := counted;
    END IF;
    RETURN result;
END $$;

-- Releases what a hold has taken of budgets.
CREATE OR REPLACE FUNCTION release_budgets(counted budgets[], hold holds) RETURNS budgets[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    FOR i IN 1..cardinality(counted) LOOP
        IF counted[i].account_id = hold.account_id AND hold.held_at >= counted[i].period_start
            AND is_above(counted[i], hold.key_id, hold.project_id, hold.member_id)
        THEN
            counted[i].held_nano_usd := counted[i].held_nano_usd - hold.counted_nano_usd;
            counted[i].exposure_nano_usd := counted[i].exposure_nano_usd - hold.counted_risk_nano_usd;
        END IF;
    END LOOP;
    RETURN counted;
END $$;

-- Counts the cost of a call in the budgets above it; a charge that is taken back has a negative one.
CREATE OR REPLACE FUNCTION spend(
    counted budgets[], p_account text, p_call jsonb, p_held_at bigint, p_cost bigint
) RETURNS budgets[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    FOR i IN 1..cardinality(counted) LOOP
        IF counted[i].account_id = p_account
            AND is_above(counted[i], p_call ->> 'key_id', p_call ->> 'project_id', p_call ->> 'member_id')
        THEN
            counted[i] := turned_to(counted[i], p_held_at);
            IF p_held_at >= counted[i].period_start THEN
                counted[i].spent_nano_usd := counted[i].spent_nano_usd + p_cost;
            END IF;
        END IF;
    END LOOP;
    RETURN counted;
END $$;

-- Writes budgets that have changed.
CREATE OR REPLACE FUNCTION write_budgets(counted budgets[]) RETURNS void LANGUAGE sql AS $$
    UPDATE budgets SET period_start = new.period_start, period_end = new.period_end,
        spent_nano_usd = new.spent_nano_usd, held_nano_usd = new.held_nano_usd,
        exposure_nano_usd = new.exposure_nano_usd
    FROM unnest(counted) AS new WHERE budgets.id = new.id
        AND (budgets.period_start, budgets.spent_nano_usd, budgets.held_nano_usd, budgets.exposure_nano_usd)
            <> (new.period_start, new.spent_nano_usd, new.held_nano_usd, new.exposure_nano_usd)
$$;

-- What charged calls have spent of a budget in its period, of those after an entry; and the account's last entry. It reads
-- the account's charges, so that nothing depends on the clocks of gateways.
CREATE OR REPLACE FUNCTION spent_by_calls(
    budget budgets, p_after bigint, OUT spent bigint, OUT to_entry bigint
) LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(cost_nano_usd) FILTER (WHERE held_at >= budget.period_start AND held_at < budget.period_end
            AND is_above(budget, key_id, project_id, member_id)), 0)::bigint,
        coalesce(max(entry_seq), p_after)
    FROM calls WHERE account_id = budget.account_id AND entry_seq > p_after
$$;

-- The budget of the same place and kind of period.
CREATE OR REPLACE FUNCTION budget_like(budget budgets) RETURNS budgets LANGUAGE sql STABLE AS $$
    SELECT * FROM budgets AS earlier WHERE (earlier.account_id, earlier.scope, earlier.scope_id, earlier.period)
        = (budget.account_id, budget.scope, budget.scope_id, budget.period)
$$;

-- The present time by the clock of an account; NULL if there is none.
CREATE OR REPLACE FUNCTION present_time(p_account text, p_now bigint) RETURNS bigint LANGUAGE sql AS $$
    SELECT greatest(latest_at, present_second(p_now))
    FROM accounts WHERE id = p_account
$$;

-- Prepares a budget while its account is not locked: with the ID of the one that it replaces and, for totals, the time
-- since when that one counts, and with what calls have spent in the present period, up to the entry `to_entry`.
CREATE OR REPLACE FUNCTION prepare_budget(p_rules jsonb, p_now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    budget budgets := jsonb_populate_record(NULL::budgets, p_rules);
    earlier budgets := budget_like(budget);
    now_s bigint := present_time(budget.account_id, p_now);
    so_far record;
BEGIN
    budget.id := coalesce(earlier.id, budget.id);
    budget.created_at := coalesce(earlier.created_at, now_s);
    budget.period_end := -9223372036854775808;
    budget := turned_to(budget, now_s);
    SELECT * INTO so_far FROM spent_by_calls(budget, 0);
    budget.spent_nano_usd := so_far.spent;
    RETURN to_jsonb(budget) || jsonb_build_object('to_entry', so_far.to_entry);
END $$;

-- Sets a budget that was prepared, with what counts in its present period already: what the one before it has counted in
-- the same period, or the sum and the charges since. It is to be prepared again if another period has begun, another
-- budget was set, or a charge was taken back.
CREATE OR REPLACE FUNCTION set_budget(p_prepared jsonb, p_now bigint, p_most integer) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    acc accounts;
    budget budgets := jsonb_populate_record(NULL::budgets, p_prepared);
    to_entry bigint := (p_prepared ->> 'to_entry')::bigint;
    earlier budgets;
    since record;
BEGIN
    SELECT * INTO acc FROM accounts WHERE id = budget.account_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN '{"refusal": "account"}';
    END IF;
    acc.latest_at := present_time(acc.id, p_now);
    IF NOT (CASE budget.scope
        WHEN 'account' THEN budget.scope_id = acc.id
        WHEN 'project' THEN budget.scope_id = 'default' OR EXISTS (SELECT 1 FROM projects
            WHERE id = budget.scope_id AND account_id = acc.id AND NOT archived)
        WHEN 'key' THEN EXISTS (SELECT 1 FROM api_keys
            WHERE id = budget.scope_id AND account_id = acc.id AND state <> 'deleted')
        ELSE true END)
    THEN
        RETURN '{"refusal": "scope"}';
    END IF;
    earlier := budget_like(budget);
    IF earlier.id IS NULL AND (SELECT count(*) FROM budgets WHERE account_id = acc.id) >= p_most THEN
        RETURN '{"refusal": "too many"}';
    END IF;
    IF acc.latest_at >= budget.period_end OR coalesce(earlier.id <> budget.id, false) OR EXISTS (
        SELECT 1 FROM ledger_entries WHERE account_id = acc.id AND kind = 'reversal' AND seq > to_entry)
    THEN
        RETURN '{"refusal": "again"}';
    END IF;
    earlier := turned_to(earlier, acc.latest_at);
    IF (earlier.period_start, earlier.period_end) = (budget.period_start, budget.period_end) THEN
        -- Also what was pruned since.
        budget.spent_nano_usd := earlier.spent_nano_usd;
    ELSE
        SELECT * INTO since FROM spent_by_calls(budget, to_entry);
        budget.spent_nano_usd := budget.spent_nano_usd + since.spent;
    END IF;
    SELECT coalesce(sum(counted_nano_usd), 0), coalesce(sum(counted_risk_nano_usd), 0)
        INTO budget.held_nano_usd, budget.exposure_nano_usd FROM holds
    WHERE account_id = acc.id AND held_at >= budget.period_start AND is_above(budget, key_id, project_id, member_id);
    DELETE FROM budgets WHERE id = budget.id;
    INSERT INTO budgets VALUES (budget.*);
    UPDATE accounts SET has_budgets = true, latest_at = acc.latest_at WHERE id = acc.id;
    RETURN to_jsonb(budget);
END $$;

-- Removes a budget, and returns it; NULL if there is none.
CREATE OR REPLACE FUNCTION remove_budget(p_id text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    removed budgets;
BEGIN
    PERFORM 1 FROM accounts WHERE id = (SELECT account_id FROM budgets WHERE id = p_id) FOR UPDATE;
    DELETE FROM budgets WHERE id = p_id RETURNING * INTO removed;
    UPDATE accounts SET has_budgets = EXISTS (SELECT 1 FROM budgets WHERE account_id = accounts.id)
    WHERE id = removed.account_id;
    RETURN CASE WHEN removed.id IS NOT NULL THEN to_jsonb(removed) END;
END $$;

-- The budgets of an account, or of all accounts, of which a share was spent, as they are at present.
CREATE OR REPLACE FUNCTION present_budgets(p_account text, p_now bigint, p_percent bigint) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(to_jsonb(turned_to(b, greatest(a.latest_at, present_second(p_now))))), '[]')
    FROM budgets b JOIN accounts a ON a.id = b.account_id 
    WHERE (p_account IS NULL OR a.id = p_account)
        AND (p_percent = 0 OR (b.period_end > greatest(a.latest_at, present_second(p_now))
            AND spent_nano_usd::numeric * 100 >= amount_nano_usd::numeric * p_percent))
$$;
