-- What a call should have been charged, in nano-dollars, computed from the counts and prices in its row. Each provider
-- response is priced by itself, because prices may depend on the size of its prompt; the sum is rounded up once.
CREATE OR REPLACE FUNCTION cost_of(call calls) RETURNS numeric LANGUAGE sql STABLE AS $$
    WITH answered AS (
        SELECT (step ->> 'prompt_tokens')::numeric AS prompt, (step ->> 'cached_tokens')::numeric AS cached,
            coalesce((step ->> 'cache_write_tokens')::numeric, 0) AS written,
            coalesce((step ->> 'cache_write_1h_tokens')::numeric, 0) AS hour,
            (step ->> 'completion_tokens')::numeric AS completion
        FROM jsonb_array_elements(call.detail -> 'steps') AS step WHERE step ->> 'kind' = 'provider'
    ), answers AS (
        SELECT * FROM answered
        UNION ALL
        SELECT call.prompt_tokens, call.cached_tokens, call.cache_write_tokens, call.cache_write_1h_tokens,
            call.completion_tokens
        WHERE NOT EXISTS (SELECT 1 FROM answered)
    ), vector AS (
        SELECT coalesce(call.detail -> 'prices', jsonb_build_object('input', call.input_pico_usd,
            'output', call.output_pico_usd, 'cached_input', call.cached_input_pico_usd,
            'cache_write', call.input_pico_usd, 'cache_write_1h', call.input_pico_usd)) AS prices
    ), priced AS (
        SELECT answers.*, coalesce((prices ->> 'request')::numeric, 0) * 1000 AS fee,
            -- The rates of the highest threshold below the prompt, or else those of small prompts.
            coalesce((SELECT step FROM jsonb_array_elements(prices -> 'above') AS step
                WHERE answers.prompt > (step ->> 'prompt_tokens')::numeric
                ORDER BY (step ->> 'prompt_tokens')::numeric DESC LIMIT 1), prices) AS rates
        FROM answers, vector
    )
    SELECT ceil(sum(fee
        + greatest(prompt - cached - written, 0) * (rates ->> 'input')::numeric
        + cached * (rates ->> 'cached_input')::numeric
        + (written - hour) * (rates ->> 'cache_write')::numeric
        + hour * (rates ->> 'cache_write_1h')::numeric
        + completion * (rates ->> 'output')::numeric) / 1000)
    FROM priced
$$;
