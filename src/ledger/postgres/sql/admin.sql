-- Adds a grant, which pays the debt first. A reference that was used before returns the earlier grant.
CREATE OR REPLACE FUNCTION add_grant(
    p_account text, p_id text, p_amount bigint, p_expires bigint, p_reason text, p_reference text,
    p_created bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    never constant bigint := 9223372036854775807;
    acc accounts%ROWTYPE;
    earlier credit_grants%ROWTYPE;
    total numeric;
    paid bigint;
    ends bigint := coalesce(p_expires, never);
    at integer := 1;
BEGIN
    SELECT * INTO acc FROM accounts WHERE id = p_account FOR UPDATE;
    IF NOT FOUND THEN
        RETURN '{"no": "account"}';
    END IF;
    SELECT * INTO earlier FROM credit_grants WHERE account_id = p_account AND reference = p_reference;
    IF FOUND THEN
        IF earlier.amount <> p_amount OR earlier.expires_at IS DISTINCT FROM p_expires THEN
            RETURN '{"no": "reference"}';
        END IF;
        RETURN jsonb_build_object('before', to_jsonb(earlier));
    END IF;
    total := coalesce((SELECT sum(one) FROM unnest(acc.fund_left) AS one), 0)::numeric - acc.debt;
    IF total + p_amount > never THEN
        RETURN '{"no": "too much"}';
    END IF;
    acc := brought_up_to_date(acc, greatest(p_created, acc.latest));
    total := coalesce((SELECT sum(one) FROM unnest(acc.fund_left) AS one), 0)::numeric - acc.debt;
    paid := least(acc.debt, p_amount);
    acc.debt := acc.debt - paid;
    IF p_amount > paid THEN
        WHILE at <= cardinality(acc.fund_ids) AND acc.fund_expires[at] <= ends LOOP
            at := at + 1;
        END LOOP;
        acc.fund_ids := acc.fund_ids[:at - 1] || p_id || acc.fund_ids[at:];
        acc.fund_left := acc.fund_left[:at - 1] || (p_amount - paid) || acc.fund_left[at:];
        acc.fund_held := acc.fund_held[:at - 1] || 0::bigint || acc.fund_held[at:];
        acc.fund_expires := acc.fund_expires[:at - 1] || ends || acc.fund_expires[at:];
    END IF;
    UPDATE accounts SET fund_ids = acc.fund_ids, fund_left = acc.fund_left, fund_held = acc.fund_held,
        fund_expires = acc.fund_expires, debt = acc.debt, held = acc.held, exposure = acc.exposure,
        lapsed_at = NULL, latest = acc.latest
    WHERE id = p_account;
    INSERT INTO credit_grants (id, account_id, amount, expires_at, reason, created_at, reference)
    VALUES (p_id, p_account, p_amount, p_expires, p_reason, p_created, p_reference);
    INSERT INTO ledger_entries (account_id, kind, ref, delta, balance_after, at)
    VALUES (p_account, 'grant', p_id, p_amount, (total + p_amount)::bigint, p_created);
    RETURN '{}';
END $$;

-- Posts expired credit, for up to p_most accounts that have some.
CREATE OR REPLACE FUNCTION sweep_expired(p_now bigint, p_most integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    acc accounts%ROWTYPE;
    wanted text[];
    swept integer := 0;
BEGIN
    PERFORM set_config('lock_timeout', '1500', true);
    wanted := ARRAY(SELECT id FROM accounts
        WHERE (fund_expires[1] <= p_now OR debt > 0)
            AND EXISTS (SELECT 1 FROM unnest(fund_left, fund_held, fund_expires) AS f (remains, held_of, ends)
                WHERE remains > held_of AND (ends <= p_now OR debt > 0))
        ORDER BY id LIMIT p_most);
    FOR acc IN SELECT * FROM accounts WHERE id = ANY (wanted) ORDER BY id FOR UPDATE LOOP
        acc := brought_up_to_date(acc, greatest(p_now, acc.latest));
        UPDATE accounts SET fund_ids = acc.fund_ids, fund_left = acc.fund_left,
            fund_held = acc.fund_held, fund_expires = acc.fund_expires, debt = acc.debt,
            held = acc.held, exposure = acc.exposure, lapsed_at = acc.lapsed_at, latest = acc.latest
        WHERE id = acc.id;
        swept := swept + 1;
    END LOOP;
    RETURN swept;
END $$;

-- The callers of active keys, and the version of the settings.
CREATE OR REPLACE FUNCTION look_up(p_digests bytea[]) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN jsonb_build_object('settings', (SELECT version FROM settings), 'callers', (
        SELECT coalesce(jsonb_agg(jsonb_build_object('digest', encode(digest, 'hex'), 'key', k.id,
            'account', a.id, 'track', track, 'tier', tier, 'closed', closed, 'version', version,
            -- The earliest expiry of credit that is not held; NULL if none of it expires.
            'expires', (SELECT min(ends) FROM unnest(fund_left, fund_held, fund_expires)
                    AS fund (remaining, held, ends)
                WHERE remaining > fund.held AND ends > extract(epoch FROM clock_timestamp())
                    AND ends < 9223372036854775807))), '[]')
        FROM api_keys k JOIN accounts a ON a.id = k.account_id
        WHERE digest = ANY (p_digests) AND state = 'active'));
END $$;

-- Assigns a slot and an epoch to a gateway that starts, or that has lost its lease.
CREATE OR REPLACE FUNCTION begin_gateway(p_lease_seconds integer) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    free_slot integer;
    new_epoch bigint;
BEGIN
    LOCK TABLE gateways IN SHARE ROW EXCLUSIVE MODE;
    -- Dead gateways are deleted by those that observed them. A gateway that restarts over and over, alone, would
    -- use up all slots: only then are leases judged by the server's clock.
    IF (SELECT count(*) FROM gateways) >= 1024 THEN
        DELETE FROM gateways WHERE beat_at < clock_timestamp() - make_interval(secs => p_lease_seconds);
    END IF;
    DELETE FROM lanes WHERE at < now() - interval '1 day';
    -- Slots are assigned in turn, so that it takes long until a slot is reused: the calls of a gateway that is only
    -- paused still have IDs with its slot.
    new_epoch := nextval('gateway_epochs');
    SELECT one INTO free_slot FROM generate_series(0, 1023) AS one
    WHERE NOT EXISTS (SELECT 1 FROM gateways WHERE slot = one)
    ORDER BY (one + 1024 - new_epoch % 1024) % 1024 LIMIT 1;
    IF free_slot IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO gateways (slot, epoch) VALUES (free_slot, new_epoch);
    -- Call IDs continue after all existing ones: the slot may have belonged to a gateway whose clock was ahead.
    RETURN jsonb_build_object('slot', free_slot, 'epoch', new_epoch, 'after', greatest(
        (SELECT max(id) FROM calls), (SELECT max(id) FROM holds), 0));
END $$;

-- Renews a lease: `alive` is false if it is gone, and its holds may have been released. Returns the server's time and
-- the heartbeat counters of the other gateways by epoch.
CREATE OR REPLACE FUNCTION beat(p_slot integer, p_epoch bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    is_alive boolean;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE gateways SET beats = beats + 1, beat_at = clock_timestamp()
    WHERE slot = p_slot AND epoch = p_epoch;
    is_alive := FOUND;
    RETURN jsonb_build_object('alive', is_alive,
        'now_ms', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
        'peers', (SELECT coalesce(jsonb_agg(jsonb_build_array(epoch, beats)), '[]') FROM gateways
            WHERE epoch <> p_epoch));
END $$;

-- Releases the holds of dead gateways, for up to p_most accounts. Dead are those of `p_epochs` whose counter is still
-- that of `p_beats`: a gateway that has renewed its lease since it was observed is alive.
CREATE OR REPLACE FUNCTION free_the_dead(
    p_most integer, p_epochs bigint[] DEFAULT '{}', p_beats bigint[] DEFAULT '{}'
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    wanted text[];
    acc accounts%ROWTYPE;
    dead holds%ROWTYPE;
    i integer;
    at integer;
    freed integer := 0;
BEGIN
    PERFORM set_config('lock_timeout', '1500', true);
    DELETE FROM gateways USING unnest(p_epochs, p_beats) AS silent (of_epoch, at_beats)
    WHERE epoch = of_epoch AND beats = at_beats;
    wanted := ARRAY(SELECT DISTINCT account_id FROM holds h
        WHERE NOT EXISTS (SELECT 1 FROM gateways g WHERE g.slot = h.slot AND g.epoch = h.epoch)
        ORDER BY account_id LIMIT p_most);
    FOR acc IN SELECT * FROM accounts WHERE id = ANY (wanted) ORDER BY id FOR UPDATE LOOP
        FOR dead IN
            DELETE FROM holds h WHERE account_id = acc.id
                AND NOT EXISTS (SELECT 1 FROM gateways g WHERE g.slot = h.slot AND g.epoch = h.epoch)
            RETURNING *
        LOOP
            acc.held := acc.held - dead.amount;
            acc.exposure := acc.exposure - dead.risk;
            FOR i IN 1..cardinality(dead.parts) LOOP
                at := array_position(acc.fund_ids, dead.parts_of[i]);
                acc.fund_held[at] := acc.fund_held[at] - dead.parts[i];
            END LOOP;
            freed := freed + 1;
        END LOOP;
        UPDATE accounts SET fund_held = acc.fund_held, held = acc.held, exposure = acc.exposure
        WHERE id = acc.id;
    END LOOP;
    RETURN freed;
END $$;

-- Sets the operator's settings of a model; NULL keeps a value.
CREATE OR REPLACE FUNCTION set_model(p_model text, p_enabled boolean, p_unlisted boolean) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    now_set model_settings%ROWTYPE;
BEGIN
    UPDATE settings SET version = version + 1;
    INSERT INTO model_settings AS m VALUES (p_model, coalesce(p_enabled, true), p_unlisted)
    ON CONFLICT (model_id) DO UPDATE SET enabled = coalesce(p_enabled, m.enabled),
        unlisted = coalesce(p_unlisted, m.unlisted)
    RETURNING * INTO now_set;
    RETURN to_jsonb(now_set);
END $$;

-- Sets ceilings for an account, a model, both or all (empty names): each is kept, set or cleared.
CREATE OR REPLACE FUNCTION set_limit(
    p_account text, p_model text, p_keep_rpm boolean, p_rpm bigint, p_keep_tpm boolean, p_tpm bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    rule limits%ROWTYPE;
BEGIN
    UPDATE settings SET version = version + 1;
    SELECT * INTO rule FROM limits WHERE account_id = p_account AND model_id = p_model;
    rule := ROW(p_account, p_model, CASE WHEN p_keep_rpm THEN rule.rpm ELSE p_rpm END,
        CASE WHEN p_keep_tpm THEN rule.tpm ELSE p_tpm END);
    DELETE FROM limits WHERE account_id = p_account AND model_id = p_model;
    IF rule.rpm IS NOT NULL OR rule.tpm IS NOT NULL THEN
        INSERT INTO limits VALUES (rule.*);
    END IF;
    RETURN to_jsonb(rule);
END $$;

-- All settings and their version, from one snapshot.
CREATE OR REPLACE FUNCTION all_settings() RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('version', (SELECT version FROM settings),
        'models', (SELECT coalesce(jsonb_agg(to_jsonb(m)), '[]') FROM model_settings m),
        'limits', (SELECT coalesce(jsonb_agg(to_jsonb(l)), '[]') FROM limits l))
$$;
