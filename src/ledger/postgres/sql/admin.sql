-- Adds a grant, which pays the debt first. A reference that was used before returns the earlier grant.
CREATE OR REPLACE FUNCTION add_grant(
    p_account text, p_id text, p_amount bigint, p_expires bigint, p_reason text, p_reference text,
    p_created bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    never constant bigint := 9223372036854775807;
    acc accounts;
    earlier credit_grants;
    paid bigint;
    balance bigint;
BEGIN
    SELECT * INTO acc FROM accounts WHERE id = p_account FOR UPDATE;
    IF NOT FOUND THEN
        RETURN '{"refusal": "account"}';
    END IF;
    SELECT * INTO earlier FROM credit_grants WHERE account_id = p_account AND reference = p_reference;
    IF FOUND THEN
        IF earlier.amount_nano_usd <> p_amount OR earlier.expires_at IS DISTINCT FROM p_expires THEN
            RETURN '{"refusal": "reference"}';
        END IF;
        RETURN jsonb_build_object('earlier', to_jsonb(earlier));
    END IF;
    IF balance_of(acc)::numeric + p_amount > never THEN
        RETURN '{"refusal": "too much"}';
    END IF;
    acc.latest_at := greatest(p_created, acc.latest_at);
    acc := bring_up_to_date(acc);
    balance := balance_of(acc) + p_amount;
    paid := least(acc.debt_nano_usd, p_amount);
    acc.debt_nano_usd := acc.debt_nano_usd - paid;
    IF p_amount > paid THEN
        acc.funds := add_fund(acc.funds, ROW(p_id, p_amount - paid, 0, coalesce(p_expires, never))::fund);
    END IF;
    acc.lapsed_at := NULL;
    PERFORM write_credit(acc);
    INSERT INTO credit_grants (id, account_id, amount_nano_usd, expires_at, reason, created_at, reference)
    VALUES (p_id, p_account, p_amount, p_expires, p_reason, p_created, p_reference);
    INSERT INTO ledger_entries (account_id, kind, ref, delta_nano_usd, balance_after_nano_usd, at)
    VALUES (p_account, 'grant', p_id, p_amount, balance, p_created);
    RETURN '{}';
END $$;

-- Posts expired credit, for up to p_most accounts that have some.
CREATE OR REPLACE FUNCTION sweep_expired(p_now bigint, p_most integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    acc accounts;
    wanted text[];
    swept integer := 0;
BEGIN
    PERFORM set_config('lock_timeout', '1500', true);
    wanted := ARRAY(SELECT id FROM accounts
        WHERE (funds[1].expires_at <= p_now OR debt_nano_usd > 0)
            AND EXISTS (SELECT 1 FROM unnest(funds) AS f
                WHERE f.remaining_nano_usd > f.held_nano_usd AND (f.expires_at <= p_now OR debt_nano_usd > 0))
        ORDER BY id LIMIT p_most);
    FOR acc IN SELECT * FROM accounts WHERE id = ANY (wanted) ORDER BY id COLLATE "C" FOR UPDATE LOOP
        acc.latest_at := greatest(p_now, acc.latest_at);
        PERFORM write_credit(bring_up_to_date(acc));
        swept := swept + 1;
    END LOOP;
    RETURN swept;
END $$;

-- The callers of active keys by valid secrets, and the version of the settings.
CREATE OR REPLACE FUNCTION look_up(p_digests bytea[], p_now bigint) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    now_s bigint := present_second(p_now);
BEGIN
    RETURN jsonb_build_object('settings', (SELECT version FROM settings), 'callers', (
        SELECT coalesce(jsonb_agg(jsonb_build_object('digest', encode(secret, 'hex'), 'key', k.id,
            'account', a.id, 'track', track, 'tier', tier, 'closed', closed, 'version', version,
            'project', k.project_id, 'member', k.member_id, 'key_expires', k.expires_at, 'models', k.models,
            'rpm', k.rpm, 'tpm', k.tpm,
            -- The earliest expiry of credit that is not held; NULL if none of it expires.
            'expires', (SELECT min(f.expires_at) FROM unnest(funds) AS f
                WHERE f.remaining_nano_usd > f.held_nano_usd
                    AND f.expires_at > extract(epoch FROM clock_timestamp())
                    AND f.expires_at < 9223372036854775807))), '[]')
        FROM (SELECT digest AS secret, api_keys.* FROM api_keys WHERE digest = ANY (p_digests)
            UNION ALL SELECT previous_digest, api_keys.* FROM api_keys
                WHERE previous_digest = ANY (p_digests) AND previous_until > now_s) k
            JOIN accounts a ON a.id = k.account_id
        WHERE state = 'active' AND (k.expires_at IS NULL OR k.expires_at > now_s)));
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
