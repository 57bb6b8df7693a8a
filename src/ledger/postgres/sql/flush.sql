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
