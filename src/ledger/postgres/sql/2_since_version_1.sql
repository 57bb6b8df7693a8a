-- What tables of version 1 lack; those that were just made have it. Holds of gateways that ran then are released
-- when their counters stand still.
ALTER TABLE holds ADD COLUMN IF NOT EXISTS admitted_at bigint NOT NULL DEFAULT 0;
ALTER TABLE holds ALTER COLUMN admitted_at DROP DEFAULT;
ALTER TABLE gateways DROP COLUMN IF EXISTS lease_until,
    ADD COLUMN IF NOT EXISTS beats bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS beat_at timestamptz NOT NULL DEFAULT clock_timestamp();
DROP FUNCTION IF EXISTS beat(integer, bigint, integer);
DROP FUNCTION IF EXISTS free_the_dead(integer);

