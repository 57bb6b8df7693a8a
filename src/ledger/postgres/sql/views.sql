-- Views for operators, the same as those of the embedded ledger: docs/SQL.md has questions and queries.

-- Every grant, charge, expiry and reversal in order, with the balance after it. `ref` is the grant's ID or the call's.
CREATE VIEW ledger AS
    SELECT seq, account_id, kind, ref, delta_nano_usd, balance_after_nano_usd, at FROM ledger_entries
    UNION ALL
    SELECT entry_seq, account_id, 'charge', id::text, -cost_nano_usd, balance_after_nano_usd, ended_at_ms / 1000
    FROM calls WHERE entry_seq IS NOT NULL
        -- While an account's past is being pruned, charges that its opening entry has replaced are still in the tables
        -- of their months.
        AND NOT EXISTS (SELECT 1 FROM ledger_entries o
            WHERE o.account_id = calls.account_id AND o.kind = 'opening' AND o.seq >= entry_seq);

-- The last entries of an account before this number, newest first. From the view itself the planner would read and sort
-- all charges of the account.
CREATE FUNCTION entries_before(p_account text, p_before bigint, p_most bigint) RETURNS SETOF ledger
LANGUAGE sql STABLE AS $$
    SELECT * FROM (
        (SELECT seq, account_id, kind, ref, delta_nano_usd, balance_after_nano_usd, at FROM ledger_entries
            WHERE account_id = p_account AND seq < p_before ORDER BY seq DESC LIMIT p_most)
        UNION ALL
        (SELECT entry_seq, account_id, 'charge', id::text, -cost_nano_usd, balance_after_nano_usd,
                ended_at_ms / 1000 FROM calls
            WHERE account_id = p_account AND entry_seq < p_before
                AND entry_seq > coalesce((SELECT seq FROM ledger_entries
                    WHERE account_id = p_account AND kind = 'opening'), 0)
            ORDER BY entry_seq DESC LIMIT p_most)
    ) AS entries ORDER BY seq DESC LIMIT p_most
$$;

-- Holds of running calls by account.
CREATE VIEW held_now AS
    SELECT account_id, count(*) AS calls, sum(amount_nano_usd)::bigint AS held_nano_usd FROM holds GROUP BY 1;

-- What each account has, and what its running calls hold of it.
CREATE VIEW balances AS
    SELECT account_id, email, name, balance_nano_usd, held_nano_usd,
        balance_nano_usd - held_nano_usd AS available_nano_usd
    FROM (SELECT id AS account_id, email, name, held_nano_usd,
            coalesce((SELECT sum(remaining_nano_usd) FROM unnest(funds)), 0)::bigint
                - debt_nano_usd AS balance_nano_usd
        FROM accounts) AS sums;

-- Usage and cost of each account by month (UTC, `2026-11`).
CREATE VIEW spend_by_month AS
    SELECT substr(day, 1, 7) AS month, account_id, sum(calls)::bigint AS calls,
        sum(charged_calls)::bigint AS charged_calls, sum(prompt_tokens)::bigint AS prompt_tokens,
        sum(cached_tokens)::bigint AS cached_tokens, sum(cache_write_tokens)::bigint AS cache_write_tokens,
        sum(completion_tokens)::bigint AS completion_tokens, sum(reasoning_tokens)::bigint AS reasoning_tokens,
        sum(cost_nano_usd)::bigint AS cost_nano_usd
    FROM usage_days GROUP BY 1, 2;

-- Usage and cost of each key by month.
CREATE VIEW spend_by_key AS
    SELECT substr(day, 1, 7) AS month, usage_days.account_id, key_id, api_keys.name AS key_name,
        sum(calls)::bigint AS calls, sum(charged_calls)::bigint AS charged_calls,
        sum(prompt_tokens)::bigint AS prompt_tokens, sum(cached_tokens)::bigint AS cached_tokens,
        sum(cache_write_tokens)::bigint AS cache_write_tokens, sum(completion_tokens)::bigint AS completion_tokens,
        sum(reasoning_tokens)::bigint AS reasoning_tokens, sum(cost_nano_usd)::bigint AS cost_nano_usd
    FROM usage_days LEFT JOIN api_keys ON api_keys.id = key_id GROUP BY 1, 2, 3, 4;

-- Usage and cost of each project by month.
CREATE VIEW spend_by_project AS
    SELECT substr(day, 1, 7) AS month, usage_days.account_id, project_id,
        coalesce(projects.name, 'Default') AS project_name, sum(calls)::bigint AS calls,
        sum(charged_calls)::bigint AS charged_calls, sum(prompt_tokens)::bigint AS prompt_tokens,
        sum(completion_tokens)::bigint AS completion_tokens, sum(cost_nano_usd)::bigint AS cost_nano_usd
    FROM usage_days LEFT JOIN projects ON projects.id = project_id GROUP BY 1, 2, 3, 4;

-- Usage and cost of each member by month: of the keys that they made.
CREATE VIEW spend_by_member AS
    SELECT substr(day, 1, 7) AS month, usage_days.account_id, member_id, sum(calls)::bigint AS calls,
        sum(charged_calls)::bigint AS charged_calls, sum(prompt_tokens)::bigint AS prompt_tokens,
        sum(completion_tokens)::bigint AS completion_tokens, sum(cost_nano_usd)::bigint AS cost_nano_usd
    FROM usage_days JOIN api_keys ON api_keys.id = key_id WHERE member_id IS NOT NULL GROUP BY 1, 2, 3;

-- What was charged for each model by month and, where the provider's prices are configured, what is left of it.
CREATE VIEW margin_by_model AS
    SELECT substr(day, 1, 7) AS month, model, sum(calls)::bigint AS calls,
        sum(charged_calls)::bigint AS charged_calls, sum(cost_nano_usd)::bigint AS charged_nano_usd,
        sum(costed_calls)::bigint AS costed_calls, sum(provider_cost_nano_usd)::bigint AS provider_cost_nano_usd,
        sum(margin_nano_usd)::bigint AS margin_nano_usd
    FROM usage_days GROUP BY 1, 2;
