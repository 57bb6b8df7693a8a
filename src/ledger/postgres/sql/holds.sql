-- Holds: the steps that begin a call or let it go on.

-- Why a hold is not placed or extended, whatever the credit; NULL if nothing is in the way. `is_lost` is set if the
-- hold to extend does not exist.
CREATE OR REPLACE FUNCTION hold_refusal(
    acc accounts, step batch_step, batch batch_context, is_key_active boolean, is_lost boolean
) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE
        -- A disabled key pays for nothing more, however recently it was looked up.
        WHEN NOT is_key_active THEN '{"refusal": "key"}'
        WHEN acc.id IS NULL THEN '{"refusal": "account"}'
        WHEN is_lost THEN '{"refusal": "hold"}'
        WHEN NOT batch.is_alive THEN '{"refusal": "lease"}'
        WHEN step.kind = 'hold' AND step.renew IS NULL AND (batch.settings_version <> step.settings_version
            OR acc.version <> step.account_version) THEN '{"refusal": "stale"}'
        WHEN acc.closed THEN jsonb_build_object('refusal', 'account',
            'balance_nano_usd', (credit_of(acc)).balance_nano_usd)
        WHEN acc.frozen THEN '{"refusal": "frozen"}'
    END;
END $$;

CREATE OR REPLACE FUNCTION shortage(acc accounts, credit credit_sums) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('refusal', 'short', 'balance_nano_usd', credit.balance_nano_usd,
        'available_nano_usd', credit.available_nano_usd, 'held_nano_usd', acc.held_nano_usd,
        'exposure_nano_usd', acc.exposure_nano_usd, 'usable_nano_usd', credit.usable_nano_usd,
        'expired_at', credit.expired_at)
$$;

-- Raises a hold to an amount, from the credit that expires first, and sets its risk.
CREATE OR REPLACE FUNCTION raise_hold(
    acc accounts, hold holds, p_amount bigint, p_risk bigint
) RETURNS step_result LANGUAGE plpgsql AS $$
DECLARE
    result step_result;
    fund fund;
    missing bigint := p_amount - hold.amount_nano_usd;
    taken bigint;
BEGIN
    FOR i IN 1..cardinality(acc.funds) LOOP
        EXIT WHEN missing = 0;
        fund := acc.funds[i];
        taken := least(fund.remaining_nano_usd - fund.held_nano_usd, missing);
        IF taken > 0 AND fund.expires_at > acc.latest_at THEN
            acc.funds[i].held_nano_usd := fund.held_nano_usd + taken;
            hold.parts := hold.parts || ROW(fund.grant_id, taken)::grant_part;
            missing := missing - taken;
        END IF;
    END LOOP;
    acc.held_nano_usd := acc.held_nano_usd + p_amount - hold.amount_nano_usd;
    acc.exposure_nano_usd := acc.exposure_nano_usd + p_risk - hold.risk_nano_usd;
    hold.amount_nano_usd := p_amount;
    hold.risk_nano_usd := p_risk;
    result.account := acc;
    result.new_hold := hold;
    RETURN result;
END $$;

CREATE OR REPLACE FUNCTION place_hold(
    acc accounts, counted budgets[], step batch_step, batch batch_context, is_key_active boolean
) RETURNS step_result LANGUAGE plpgsql AS $$
DECLARE
    never constant bigint := 9223372036854775807;
    result step_result;
    hold holds;
    credit credit_sums;
    taken step_result;
    risk bigint := greatest(step.worst_case_nano_usd - step.amount_nano_usd, 0);
BEGIN
    result.account := acc;
    IF step.repeat THEN
        SELECT * INTO hold FROM holds WHERE id = step.call_id;
        IF FOUND THEN
            result.reply := jsonb_build_object('expires_at',
                nullif(acc.funds[fund_position(acc.funds, hold.parts[1].grant_id)].expires_at, never));
            RETURN result;
        END IF;
    END IF;
    result.reply := hold_refusal(acc, step, batch, is_key_active, false);
    IF result.reply IS NOT NULL THEN
        RETURN result;
    END IF;
    IF step.idempotency_key IS NOT NULL AND step.renew IS NULL THEN
        result.reply := key_refusal(step);
        IF result.reply IS NOT NULL THEN
            RETURN result;
        END IF;
    END IF;
    credit := credit_of(acc);
    IF credit.available_nano_usd <= 0 OR credit.available_nano_usd < step.amount_nano_usd
        OR acc.exposure_nano_usd::numeric + risk
            > credit.available_nano_usd::numeric - step.amount_nano_usd + step.overdraft_nano_usd
    THEN
        result.reply := shortage(acc, credit);
        RETURN result;
    END IF;
    hold := ROW(step.call_id, acc.id, batch.slot, batch.epoch, 0, 0,
        CASE WHEN step.renew THEN least(step.admitted_at, acc.latest_at) ELSE acc.latest_at END,
        '{}'::grant_part[], step.model, step.reservations, step.idempotency_key, step.request_hash, step.key_id,
        step.project_id, step.member_id, NULL, 0, 0);
    taken := take_of_budgets(counted, hold, step.amount_nano_usd, risk, hold.admitted_at, step.overdraft_nano_usd);
    IF taken.reply IS NOT NULL THEN
        result.reply := taken.reply;
        RETURN result;
    END IF;
    hold.held_at := hold.admitted_at;
    hold.counted_nano_usd := step.amount_nano_usd;
    hold.counted_risk_nano_usd := risk;
    result := raise_hold(acc, hold, step.amount_nano_usd, risk);
    result.budgets := taken.budgets;
    result.reply := jsonb_build_object('expires_at', credit.next_expiry_at);
    RETURN result;
END $$;

-- Raises the hold of a running call; the amount never decreases. In budgets the whole call counts from now on in the
-- present period.
CREATE OR REPLACE FUNCTION extend_hold(
    acc accounts, counted budgets[], step batch_step, batch batch_context, is_key_active boolean
) RETURNS step_result LANGUAGE plpgsql AS $$
DECLARE
    result step_result;
    hold holds;
    held_at bigint;
    credit credit_sums;
    taken step_result;
    in_budgets bigint;
    risk_in_budgets bigint;
    amount bigint;
    missing bigint;
    risk bigint;
BEGIN
    result.account := acc;
    SELECT * INTO hold FROM holds WHERE id = step.call_id;
    result.reply := hold_refusal(acc, step, batch, is_key_active, NOT FOUND);
    IF result.reply IS NOT NULL THEN
        RETURN result;
    END IF;
    credit := credit_of(acc);
    amount := greatest(step.amount_nano_usd, hold.amount_nano_usd);
    missing := amount - hold.amount_nano_usd;
    risk := greatest(step.worst_case_nano_usd - amount, 0);
    IF (missing > 0 AND credit.available_nano_usd < missing)
        OR acc.exposure_nano_usd::numeric - hold.risk_nano_usd + risk
            > credit.available_nano_usd::numeric - missing + step.overdraft_nano_usd
    THEN
        result.reply := shortage(acc, credit);
        RETURN result;
    END IF;
    held_at := CASE WHEN step.renew THEN hold.held_at ELSE acc.latest_at END;
    -- Not what expired grants have added to the hold.
    in_budgets := greatest(step.amount_nano_usd, hold.counted_nano_usd);
    risk_in_budgets := greatest(step.worst_case_nano_usd - in_budgets, 0);
    taken := take_of_budgets(counted, hold, in_budgets, risk_in_budgets, held_at, step.overdraft_nano_usd);
    IF taken.reply IS NOT NULL THEN
        result.reply := taken.reply;
        RETURN result;
    END IF;
    hold.held_at := held_at;
    hold.counted_nano_usd := in_budgets;
    hold.counted_risk_nano_usd := risk_in_budgets;
    result := raise_hold(acc, hold, amount, risk);
    hold := result.new_hold;
    UPDATE holds SET amount_nano_usd = hold.amount_nano_usd, risk_nano_usd = hold.risk_nano_usd,
        parts = hold.parts, reservations = step.reservations, held_at = hold.held_at,
        counted_nano_usd = hold.counted_nano_usd, counted_risk_nano_usd = hold.counted_risk_nano_usd
    WHERE id = step.call_id;
    result.new_hold := NULL;
    result.budgets := taken.budgets;
    result.reply := '{}';
    RETURN result;
END $$;

-- The gateway reports that this call is running. If its hold exists, the present lease takes it over and it is raised
-- to the acknowledged amount; if it is gone it is placed again, unless the call has ended meanwhile.
CREATE OR REPLACE FUNCTION renew_hold(
    acc accounts, counted budgets[], step batch_step, batch batch_context
) RETURNS step_result LANGUAGE plpgsql AS $$
DECLARE
    result step_result;
BEGIN
    IF EXISTS (SELECT 1 FROM holds WHERE id = step.call_id) THEN
        IF batch.is_alive THEN
            UPDATE holds SET slot = batch.slot, epoch = batch.epoch WHERE id = step.call_id;
        END IF;
        RETURN extend_hold(acc, counted, step, batch, true);
    END IF;
    IF EXISTS (SELECT 1 FROM calls WHERE id = step.call_id) THEN
        result.account := acc;
        result.reply := '{"refusal": "hold"}';
        RETURN result;
    END IF;
    RETURN place_hold(acc, counted, step, batch, true);
END $$;
