-- Pruning: removes the months before a cutoff, the first day of a month in UTC, in short transactions, each of which
-- leaves a ledger that adds up.
--
-- First, an opening entry replaces the entries of each account before the cutoff. Charges that it replaces stay in the
-- tables of their months, where audits disregard them, until these tables are detached.

-- The first entry of an account that stays: of the cutoff's day or later, or the charge of a call that ended or was
-- admitted then. NULL if none does.
CREATE OR REPLACE FUNCTION first_kept_entry(p_account text, p_cutoff date) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    cutoff_s bigint := extract(epoch FROM p_cutoff::timestamp);
    cutoff_ms bigint := cutoff_s * 1000;
    first_id bigint := cutoff_ms << 19;
BEGIN
    RETURN least(
        (SELECT min(seq) FROM ledger_entries WHERE account_id = p_account AND at >= cutoff_s),
        (SELECT min(entry_seq) FROM calls
            WHERE account_id = p_account AND id >= first_id AND entry_seq IS NOT NULL),
        -- `OFFSET` keeps the planner from reading all calls in the order of their entries.
        (SELECT min(entry_seq) FROM (SELECT entry_seq FROM calls
            WHERE account_id = p_account AND id < first_id AND ended_at_ms >= cutoff_ms OFFSET 0) AS crossing));
END $$;

-- Replaces the entries of an account before the cutoff by an opening entry, which has the number, the time and the
-- balance of the last of them. Returns how many entries other than charges are gone.
CREATE OR REPLACE FUNCTION open_account(p_account text, p_cutoff date) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    day text := to_char(p_cutoff, 'YYYY-MM-DD');
    kept bigint := coalesce(first_kept_entry(p_account, p_cutoff), 9223372036854775807);
    last ledger;
    earlier ledger_entries;
    removed bigint;
BEGIN
    SELECT * INTO earlier FROM ledger_entries WHERE account_id = p_account AND kind = 'opening';
    IF earlier.ref >= day THEN
        RETURN 0;
    END IF;
    SELECT * INTO last FROM entries_before(p_account, kept, 1);
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    DELETE FROM ledger_entries WHERE account_id = p_account AND seq < kept;
    GET DIAGNOSTICS removed = ROW_COUNT;
    INSERT INTO ledger_entries (seq, account_id, kind, ref, delta_nano_usd, balance_after_nano_usd, at)
    VALUES (last.seq, p_account, 'opening', day, last.balance_after_nano_usd, last.balance_after_nano_usd, last.at);
    RETURN removed - (earlier.seq IS NOT NULL)::integer;
END $$;

-- Posts opening entries of up to p_most accounts whose IDs follow p_after. Returns the last of them, if there are any,
-- and how many entries are gone.
CREATE OR REPLACE FUNCTION open_accounts(p_after text, p_most integer, p_cutoff date) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    ids text[] := ARRAY(SELECT id FROM accounts WHERE id > p_after ORDER BY id LIMIT p_most);
    account text;
    removed bigint := 0;
BEGIN
    PERFORM set_config('lock_timeout', '1500', true), set_config('enable_seqscan', 'off', true),
        set_config('jit', 'off', true);
    PERFORM 1 FROM accounts WHERE id = ANY (ids) ORDER BY id COLLATE "C" FOR UPDATE;
    FOREACH account IN ARRAY ids LOOP
        removed := removed + open_account(account, p_cutoff);
    END LOOP;
    RETURN jsonb_build_object('last', ids[cardinality(ids)], 'entries', removed);
END $$;

-- Detaches the table of a month whose accounts have opening entries, and drops it unless it is to be kept. Charges after
-- the opening entries, of calls that ran into a later month, are moved to `calls_other`. All queries of calls wait
-- meanwhile, so it gives up soon if it has to wait itself. Returns how many calls were moved.
CREATE OR REPLACE FUNCTION prune_month(p_month date, p_keep boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    name text := month_table(p_month);
    moved bigint;
BEGIN
    PERFORM set_config('lock_timeout', '300', true), set_config('jit', 'off', true),
        -- One search of the index for each account.
        set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
        set_config('enable_mergejoin', 'off', true);
    LOCK TABLE ONLY calls IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('ALTER TABLE calls DETACH PARTITION %I', name);
    EXECUTE format('INSERT INTO calls SELECT c.* FROM accounts a
            LEFT JOIN ledger_entries o ON o.account_id = a.id AND o.kind = ''opening''
            CROSS JOIN LATERAL (SELECT * FROM %I
                WHERE account_id = a.id AND entry_seq > coalesce(o.seq, 0)) AS c', name);
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF NOT p_keep THEN
        EXECUTE format('DROP TABLE %I', name);
    END IF;
    RETURN moved;
END $$;

-- Removes up to p_most calls before the cutoff whose months have no table. Returns how many are gone.
CREATE OR REPLACE FUNCTION prune_other_calls(p_most integer, p_cutoff date) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    removed bigint;
BEGIN
    DELETE FROM calls_other WHERE id = ANY (ARRAY(SELECT id FROM calls_other c
        WHERE id < first_call_of(p_cutoff::timestamp AT TIME ZONE 'UTC')
            AND (entry_seq IS NULL OR entry_seq <= (SELECT seq FROM ledger_entries o
                WHERE o.account_id = c.account_id AND kind = 'opening'))
        ORDER BY id LIMIT p_most));
    GET DIAGNOSTICS removed = ROW_COUNT;
    DELETE FROM replays WHERE call_id < first_call_of(p_cutoff::timestamp AT TIME ZONE 'UTC');
    RETURN removed;
END $$;

-- Creates tables for the months before the cutoff whose calls have none, so that they can be kept.
CREATE OR REPLACE FUNCTION add_months_before(p_cutoff date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    month date := month_of_call((SELECT min(id) FROM calls_other));
BEGIN
    WHILE month < p_cutoff LOOP
        PERFORM add_month(month);
        month := month_of_call((SELECT min(id) FROM calls_other
            WHERE id >= first_call_of((month + interval '1 month') AT TIME ZONE 'UTC')));
    END LOOP;
END $$;
