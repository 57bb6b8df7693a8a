-- The ledger that all gateways share. Amounts are in nano-dollars, prices in pico-dollars a token, times in seconds
-- (`…_at`) or milliseconds (`…_ms`) since 1970.

-- An account and its credit are one row: an operation on money locks this row and no other.
CREATE TABLE accounts (
    id         text PRIMARY KEY,
    email      text NOT NULL,
    name       text,
    track      text NOT NULL,
    tier       text NOT NULL,
    closed     boolean NOT NULL DEFAULT false,
    created_at bigint NOT NULL,
    -- Its entries do not add up: it starts no new calls.
    frozen     boolean NOT NULL DEFAULT false,
    -- Increases with every change of what a gateway may cache of the account.
    version    bigint NOT NULL DEFAULT 1,
    -- What is left of its grants, in order of use: the earliest expiry first, those without one last (the greatest
    -- number stands for none). Used-up grants are removed.
    fund_ids     text[] NOT NULL DEFAULT '{}',
    fund_left    bigint[] NOT NULL DEFAULT '{}',
    fund_held    bigint[] NOT NULL DEFAULT '{}',
    fund_expires bigint[] NOT NULL DEFAULT '{}',
    -- Charges beyond all grants.
    debt       bigint NOT NULL DEFAULT 0 CHECK (debt >= 0),
    held       bigint NOT NULL DEFAULT 0 CHECK (held >= 0),
    -- The sum of what running calls may cost beyond their holds.
    exposure   bigint NOT NULL DEFAULT 0 CHECK (exposure >= 0),
    -- When an expiry left the account without credit; NULL after the next grant.
    lapsed_at  bigint,
    -- The latest time that was used: a clock that is set back does not revive expired credit.
    latest     bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX accounts_by_time ON accounts (created_at, id);
CREATE INDEX accounts_frozen ON accounts (id) WHERE frozen;

-- Only the digest of a key is stored; the prefix is for display.
CREATE TABLE api_keys (
    id         text PRIMARY KEY,
    account_id text NOT NULL REFERENCES accounts (id),
    name       text NOT NULL,
    prefix     text NOT NULL,
    state      text NOT NULL CHECK (state IN ('active', 'disabled', 'deleted')),
    created_at bigint NOT NULL,
    digest     bytea NOT NULL UNIQUE
);
CREATE INDEX api_keys_by_account ON api_keys (account_id);

-- Grants as they were given. What is left of them is stored with the account.
CREATE TABLE credit_grants (
    seq        bigint GENERATED ALWAYS AS IDENTITY,
    id         text PRIMARY KEY,
    account_id text NOT NULL REFERENCES accounts (id),
    amount     bigint NOT NULL CHECK (amount > 0),
    expires_at bigint,
    reason     text,
    created_at bigint NOT NULL,
    -- The operator's own ID of a payment: a reference adds credit once.
    reference  text,
    UNIQUE (account_id, reference)
);
CREATE INDEX credit_grants_by_account ON credit_grants (account_id, seq);
CREATE INDEX credit_grants_by_expiry ON credit_grants (expires_at) WHERE expires_at IS NOT NULL;

-- Every change of a balance, in order; rows are never changed or removed.
CREATE TABLE ledger_entries (
    seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id    text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('grant', 'charge', 'expiry', 'reversal')),
    -- The grant's ID, or the call's number.
    ref           text NOT NULL,
    delta         bigint NOT NULL,
    -- The sum of this account's entries up to this one.
    balance_after bigint NOT NULL,
    at            bigint NOT NULL
);
CREATE INDEX ledger_entries_by_account ON ledger_entries (account_id, seq);
-- A grant and a call are posted once; a grant can expire in parts.
CREATE UNIQUE INDEX ledger_entries_once ON ledger_entries (ref, kind) WHERE kind <> 'expiry';

-- The holds of running calls, and their gateways.
CREATE TABLE holds (
    id         bigint PRIMARY KEY,
    account_id text NOT NULL,
    slot       integer NOT NULL,
    epoch      bigint NOT NULL,
    amount     bigint NOT NULL,
    -- What the call may cost beyond the hold.
    risk       bigint NOT NULL,
    -- When it was admitted, in seconds: grants that had not expired by then pay for all of the call.
    admitted_at bigint NOT NULL,
    -- Grants, and the amounts held of them.
    parts_of   text[] NOT NULL,
    parts      bigint[] NOT NULL,
    model      text NOT NULL,
    -- Its rate-limit reservations: time, tokens and step of each, concatenated.
    places     bigint[] NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX holds_by_gateway ON holds (slot, epoch);
CREATE INDEX holds_by_account ON holds (account_id);

-- One row for each admitted call, whatever its outcome.
CREATE TABLE calls (
    id              bigint PRIMARY KEY,
    -- The `X-Request-ID` of the response; not unique, because clients may choose it.
    request_id      text NOT NULL,
    account_id      text NOT NULL,
    key_id          text NOT NULL,
    model           text NOT NULL,
    routed_model    text NOT NULL,
    upstream        text,
    stream          boolean NOT NULL,
    outcome         text NOT NULL,
    failure         text,
    reserved_tokens bigint NOT NULL,
    held            bigint NOT NULL,
    most            bigint NOT NULL,
    input_price     bigint NOT NULL,
    cached_price    bigint NOT NULL,
    output_price    bigint NOT NULL,
    admitted_ms     bigint NOT NULL,
    first_byte_ms   bigint,
    ended_ms        bigint NOT NULL,
    -- NULL if nothing was charged.
    prompt          bigint,
    cached          bigint,
    completion      bigint,
    reasoning       bigint,
    cost            bigint,
    balance_before  bigint,
    balance_after   bigint,
    -- The grants that paid for it, and the amounts.
    paid_from       text[],
    paid            bigint[],
    -- Failed attempts, and steps, in order, as JSON.
    attempts        text,
    steps           text,
    -- How a hybrid chose the routed model, as JSON.
    decision        text,
    places          bigint[],
    -- Prompt tokens that the provider wrote to its cache, and those of them that it keeps for an hour.
    cache_write     bigint,
    cache_write_1h  bigint,
    -- The whole price list as JSON, if it is more than input, cached and output price: rates and thresholds in
    -- pico-dollars, fees in nano-dollars.
    prices          text,
    -- What the provider charges the operator, if its prices are configured.
    provider_cost   bigint
);
CREATE INDEX calls_by_request ON calls (request_id);
CREATE INDEX calls_by_account ON calls (account_id, ended_ms);
CREATE INDEX calls_by_time ON calls (ended_ms);
-- Calls of an outcome, newest first. Most calls are answered, and found without this index.
CREATE INDEX calls_by_outcome ON calls (outcome, ended_ms) WHERE outcome <> 'answered';
CREATE INDEX calls_by_account_and_outcome ON calls (account_id, outcome, ended_ms)
    WHERE outcome <> 'answered';

-- Sums of the calls of one key with one model on one day. Every call counts; charged calls have tokens and a cost.
-- Written in the transactions that write calls, which have locked the account.
CREATE TABLE usage_days (
    account_id text NOT NULL,
    -- In UTC, e.g. `2026-11-16`.
    day        text COLLATE "C" NOT NULL,
    model      text COLLATE "C" NOT NULL,
    key_id     text COLLATE "C" NOT NULL,
    calls      bigint NOT NULL,
    charged    bigint NOT NULL,
    prompt     bigint NOT NULL,
    cached     bigint NOT NULL,
    completion bigint NOT NULL,
    reasoning  bigint NOT NULL,
    cost       bigint NOT NULL,
    last_ms    bigint NOT NULL,
    PRIMARY KEY (account_id, day, model, key_id)
) WITH (fillfactor = 70);

-- The operator's settings of models; without a row the catalog decides.
CREATE TABLE model_settings (
    model_id text PRIMARY KEY,
    enabled  boolean NOT NULL,
    unlisted boolean
);

-- Ceilings of rate-limit windows. An empty account or model stands for all of them.
CREATE TABLE limits (
    account_id text NOT NULL,
    model_id   text NOT NULL,
    rpm        bigint CHECK (rpm > 0),
    tpm        bigint CHECK (tpm > 0),
    PRIMARY KEY (account_id, model_id)
);

-- Increases with every change of the two tables above.
CREATE TABLE settings (
    version bigint NOT NULL
);
INSERT INTO settings VALUES (1);

-- The live gateways. Each has a slot, which is part of its call IDs, and a lease (the epoch) that it renews by
-- incrementing `beats`. The others observe the counter by their own monotonic clocks: a gateway whose counter does not
-- change for the length of a lease is dead, and the others release its holds.
CREATE TABLE gateways (
    slot    integer PRIMARY KEY,
    epoch   bigint NOT NULL,
    beats   bigint NOT NULL DEFAULT 0,
    -- By the server's clock, which can be set: used only if every slot is taken.
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 10);
CREATE SEQUENCE gateway_epochs;

-- The number of the last batch of each lane of each run of a gateway. A batch that arrives late, after it was sent
-- again on another connection, is recognized by its lower number and refused.
CREATE TABLE lanes (
    run    bigint NOT NULL,
    lane   integer NOT NULL,
    number bigint NOT NULL,
    at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run, lane)
) WITH (fillfactor = 10);

-- The server's incarnation. A crash empties this table, because it is unlogged, and the next number differs: then
-- transactions that were committed in between without waiting for the disk may be lost.
CREATE UNLOGGED TABLE lives (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    life     bigint NOT NULL
);
