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
CREATE OR REPLACE FUNCTION release_dead_holds(
    p_most integer, p_epochs bigint[] DEFAULT '{}', p_beats bigint[] DEFAULT '{}'
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    wanted text[];
    acc accounts;
    dead holds;
    counted budgets[];
    released integer := 0;
BEGIN
    PERFORM set_config('lock_timeout', '1500', true);
    DELETE FROM gateways USING unnest(p_epochs, p_beats) AS silent (of_epoch, at_beats)
    WHERE epoch = of_epoch AND beats = at_beats;
    wanted := ARRAY(SELECT DISTINCT account_id FROM holds h
        WHERE NOT EXISTS (SELECT 1 FROM gateways g WHERE g.slot = h.slot AND g.epoch = h.epoch)
        ORDER BY account_id LIMIT p_most);
    FOR acc IN SELECT * FROM accounts WHERE id = ANY (wanted) ORDER BY id COLLATE "C" FOR UPDATE LOOP
        counted := CASE WHEN acc.has_budgets
            THEN ARRAY(SELECT budgets FROM budgets WHERE account_id = acc.id) ELSE '{}'::budgets[] END;
        FOR dead IN
            DELETE FROM holds h WHERE account_id = acc.id
                AND NOT EXISTS (SELECT 1 FROM gateways g WHERE g.slot = h.slot AND g.epoch = h.epoch)
            RETURNING *
        LOOP
            acc := release_credit(acc, dead);
            counted := release_budgets(counted, dead);
            released := released + 1;
        END LOOP;
        PERFORM write_credit(acc);
        PERFORM write_budgets(counted);
    END LOOP;
    RETURN released;
END $$;
