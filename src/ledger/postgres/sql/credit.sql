-- The credit of one account. `acc.latest_at` is the present time: callers set it before anything else.

-- Sums over the grants of an account.
CREATE TYPE credit_sums AS (
    -- Neither held nor expired, less the debt that expired credit does not pay.
    available_nano_usd bigint,
    -- Not expired, less that debt.
    usable_nano_usd    bigint,
    -- All that is left for calls, including what they hold of expired grants.
    balance_nano_usd   bigint,
    -- The expiry of the credit that is used next; NULL if it has none.
    next_expiry_at     bigint,
    -- When credit expired, if nothing is usable for that reason.
    expired_at         bigint
);

CREATE OR REPLACE FUNCTION credit_of(acc accounts) RETURNS credit_sums LANGUAGE plpgsql AS $$
DECLARE
    never constant bigint := 9223372036854775807;
    fund fund;
    unheld bigint;
    live_unheld bigint := 0;
    live bigint := 0;
    expired_unheld bigint := 0;
    expired_held bigint := 0;
    debt bigint;
    sums credit_sums;
BEGIN
    FOREACH fund IN ARRAY acc.funds LOOP
        unheld := fund.remaining_nano_usd - fund.held_nano_usd;
        IF fund.expires_at > acc.latest_at THEN
            IF unheld > 0 AND live_unheld = 0 THEN
                sums.next_expiry_at := nullif(fund.expires_at, never);
            END IF;
            live := live + fund.remaining_nano_usd;
            live_unheld := live_unheld + unheld;
        ELSE
            expired_unheld := expired_unheld + unheld;
            expired_held := expired_held + fund.held_nano_usd;
            sums.expired_at := greatest(sums.expired_at, fund.expires_at);
        END IF;
    END LOOP;
    debt := greatest(acc.debt_nano_usd - expired_unheld, 0);
    sums.available_nano_usd := live_unheld - debt;
    sums.usable_nano_usd := live - debt;
    sums.balance_nano_usd := live + expired_held - debt;
    -- Distinguishes credit that has expired from credit that was spent; expired credit that pays debt counts as spent.
    IF sums.usable_nano_usd > 0 THEN
        sums.expired_at := NULL;
    ELSIF expired_unheld > acc.debt_nano_usd THEN
        sums.expired_at := coalesce(sums.expired_at, acc.lapsed_at);
    ELSE
        sums.expired_at := acc.lapsed_at;
    END IF;
    RETURN sums;
END $$;

-- The sum of the account's ledger entries.
CREATE OR REPLACE FUNCTION balance_of(acc accounts) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    fund fund;
    balance bigint := -acc.debt_nano_usd;
BEGIN
    FOREACH fund IN ARRAY acc.funds LOOP
        balance := balance + fund.remaining_nano_usd;
    END LOOP;
    RETURN balance;
END $$;

CREATE OR REPLACE FUNCTION fund_position(funds fund[], p_grant_id text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..cardinality(funds) LOOP
        IF funds[i].grant_id = p_grant_id THEN
            RETURN i;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Inserts a fund after those that expire no later.
CREATE OR REPLACE FUNCTION add_fund(funds fund[], added fund) RETURNS fund[] LANGUAGE plpgsql AS $$
DECLARE
    at integer := 1;
BEGIN
    WHILE at <= cardinality(funds) AND funds[at].expires_at <= added.expires_at LOOP
        at := at + 1;
    END LOOP;
    RETURN funds[:at - 1] || added || funds[at:];
END $$;

CREATE OR REPLACE FUNCTION without_used_up(funds fund[]) RETURNS fund[] LANGUAGE plpgsql AS $$
DECLARE
    fund fund;
    remaining fund[] := '{}';
BEGIN
    FOREACH fund IN ARRAY funds LOOP
        IF fund.remaining_nano_usd > 0 THEN
            remaining := array_append(remaining, fund);
        END IF;
    END LOOP;
    RETURN remaining;
END $$;

-- Releases what a hold has, when its row is gone.
CREATE OR REPLACE FUNCTION release_credit(acc accounts, hold holds) RETURNS accounts LANGUAGE plpgsql AS $$
DECLARE
    part grant_part;
    at integer;
BEGIN
    acc.held_nano_usd := acc.held_nano_usd - hold.amount_nano_usd;
    acc.exposure_nano_usd := acc.exposure_nano_usd - hold.risk_nano_usd;
    FOREACH part IN ARRAY hold.parts LOOP
        at := fund_position(acc.funds, part.grant_id);
        acc.funds[at].held_nano_usd := acc.funds[at].held_nano_usd - part.amount_nano_usd;
    END LOOP;
    RETURN acc;
END $$;

-- Brings an account up to the present time. Debt is paid from credit that is not held, the earliest expiry first. Of an
-- expired grant, running calls that were admitted before its expiry hold what they may cost beyond their holds; the
-- rest is forfeited. Posts entries for the expiries; the caller writes the account's row.
CREATE OR REPLACE FUNCTION bring_up_to_date(acc accounts) RETURNS accounts LANGUAGE plpgsql AS $$
DECLARE
    fund fund;
    balance bigint := balance_of(acc);
    live bigint := 0;
    unheld bigint;
    running holds;
    promised bigint;
BEGIN
    FOR i IN 1..cardinality(acc.funds) LOOP
        fund := acc.funds[i];
        unheld := least(fund.remaining_nano_usd - fund.held_nano_usd, acc.debt_nano_usd);
        acc.debt_nano_usd := acc.debt_nano_usd - unheld;
        acc.funds[i].remaining_nano_usd := fund.remaining_nano_usd - unheld;
    END LOOP;
    FOR i IN 1..cardinality(acc.funds) LOOP
        fund := acc.funds[i];
        IF fund.expires_at > acc.latest_at THEN
            live := live + fund.remaining_nano_usd;
            CONTINUE;
        END IF;
        unheld := fund.remaining_nano_usd - fund.held_nano_usd;
        IF unheld > 0 AND acc.exposure_nano_usd > 0 THEN
            FOR running IN SELECT * FROM holds WHERE account_id = acc.id AND risk_nano_usd > 0
                AND admitted_at < fund.expires_at ORDER BY id
            LOOP
                promised := least(running.risk_nano_usd, unheld);
                EXIT WHEN promised = 0;
                UPDATE holds SET amount_nano_usd = amount_nano_usd + promised,
                    risk_nano_usd = risk_nano_usd - promised,
                    parts = parts || ROW(fund.grant_id, promised)::grant_part
                WHERE id = running.id;
                acc.held_nano_usd := acc.held_nano_usd + promised;
                acc.exposure_nano_usd := acc.exposure_nano_usd - promised;
                fund.held_nano_usd := fund.held_nano_usd + promised;
                unheld := unheld - promised;
            END LOOP;
        END IF;
        IF unheld > 0 THEN
            balance := balance - unheld;
            fund.remaining_nano_usd := fund.remaining_nano_usd - unheld;
            acc.lapsed_at := greatest(acc.lapsed_at, fund.expires_at);
            INSERT INTO ledger_entries (account_id, kind, ref, delta_nano_usd, balance_after_nano_usd, at)
            VALUES (acc.id, 'expiry', fund.grant_id, -unheld, balance, acc.latest_at);
        END IF;
        acc.funds[i] := fund;
    END LOOP;
    IF live - acc.debt_nano_usd > 0 THEN
        acc.lapsed_at := NULL;
    END IF;
    acc.funds := without_used_up(acc.funds);
    RETURN acc;
END $$;

-- Writes the credit of an account that the transaction has locked.
CREATE OR REPLACE FUNCTION write_credit(acc accounts) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE accounts SET funds = acc.funds, debt_nano_usd = acc.debt_nano_usd, held_nano_usd = acc.held_nano_usd,
        exposure_nano_usd = acc.exposure_nano_usd, lapsed_at = acc.lapsed_at, latest_at = acc.latest_at
    WHERE id = acc.id;
END $$;
