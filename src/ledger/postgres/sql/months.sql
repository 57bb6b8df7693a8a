-- Months of calls. Each has a table, `calls_2026_11` for November 2026 in UTC, so that old months can be moved to other
-- disks or removed at once. A call belongs to the month of its admission, with which its ID begins.

-- The least ID of calls that are admitted at this time or later.
CREATE OR REPLACE FUNCTION first_call_of(p_at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT floor(extract(epoch FROM p_at) * 1000)::bigint << 19
$$;

-- The month (its first day) in which this ID begins.
CREATE OR REPLACE FUNCTION month_of_call(p_id bigint) RETURNS date LANGUAGE sql IMMUTABLE AS $$
    SELECT date_trunc('month', to_timestamp((p_id >> 19) / 1000.0) AT TIME ZONE 'UTC')::date
$$;

CREATE OR REPLACE FUNCTION month_table(p_month date) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'calls_' || to_char(p_month, 'YYYY_MM')
$$;

-- Creates the table of a month and moves the calls of this month to it; false if a table has this name. Calls of other
-- months are written meanwhile. Queries wait for a moment.
CREATE OR REPLACE FUNCTION add_month(p_month date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    month timestamp := date_trunc('month', p_month::timestamp);
    name text := month_table(p_month);
    first_id bigint := first_call_of(month AT TIME ZONE 'UTC');
    end_id bigint := first_call_of((month + interval '1 month') AT TIME ZONE 'UTC');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Less than charges wait for a lock, because they wait behind this one.
    PERFORM set_config('lock_timeout', '500', true);
    LOCK TABLE ONLY calls IN SHARE UPDATE EXCLUSIVE MODE;
    -- Another gateway may have created it while this one waited for the lock.
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- The strongest lock at once: with a weaker one first, two transactions could wait for each other.
    LOCK TABLE calls_other IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('CREATE TABLE %I (LIKE calls INCLUDING ALL)', name);
    EXECUTE format('WITH moved AS (DELETE FROM calls_other WHERE id >= %s AND id < %s RETURNING *)
        INSERT INTO %I SELECT * FROM moved', first_id, end_id, name);
    EXECUTE format('ALTER TABLE calls ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', name, first_id, end_id);
    RETURN true;
END $$;

-- Creates the tables of the present month and of those after it, p_count in all. Returns how many are new.
CREATE OR REPLACE FUNCTION add_months(p_count integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    added integer := 0;
BEGIN
    FOR i IN 0..p_count - 1 LOOP
        IF add_month((now() AT TIME ZONE 'UTC' + make_interval(months => i))::date) THEN
            added := added + 1;
        END IF;
    END LOOP;
    RETURN added;
END $$;

-- The months before this one that have a table.
CREATE OR REPLACE FUNCTION months_before(p_month date) RETURNS SETOF date LANGUAGE sql STABLE AS $$
    SELECT to_date(relname, '"calls_"YYYY_MM') AS month
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'calls'::regclass AND CASE WHEN relname ~ '^calls_\d{4}_\d{2}$'
        THEN to_date(relname, '"calls_"YYYY_MM') < p_month ELSE false END
    ORDER BY month
$$;
