-- Calls keep every price they were charged at, and what they cost the operator. Empty for calls of earlier versions.
ALTER TABLE calls
    -- Tokens of the prompt that the provider wrote to its cache, and those of them that it keeps for an hour.
    ADD COLUMN cache_write bigint,
    ADD COLUMN cache_write_1h bigint,
    -- JSON, where input, cached and output price are not all there is: rates and thresholds in trillionths of a
    -- dollar, fees in billionths.
    ADD COLUMN prices text,
    -- What the provider charges for it, in billionths of a dollar, where the configuration says at which prices.
    ADD COLUMN provider_cost bigint;
