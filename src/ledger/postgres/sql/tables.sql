-- What all gateways share. Amounts are billionths of a US dollar, prices trillionths a token, times
-- seconds (`…_at`) or milliseconds (`…_ms`) since 1970.

-- An account and its credit are one row: a step that touches money locks this row and no other.
CREATE TABLE accounts (
    id         text PRIMARY KEY,
    email      text NOT NULL,
    name       text,
    track      text NOT NULL,
    tier       text NOT NULL,
    closed     boolean NOT NULL DEFAULT false,
    created_at bigint NOT NULL,
    -- Its books do not add up: nothing new is begun.
    frozen     boolean NOT NULL DEFAULT false,
    -- Rises with every change of what a gateway may remember of the account.
    version    bigint NOT NULL DEFAULT 1,
    -- What is left of its grants, in order of use: the earliest expiry first, those without one last
    -- (the greatest number stands for none). Grants that are used up are not here.
    fund_ids     text[] NOT NULL DEFAULT '{}',
    fund_left    bigint[] NOT NULL DEFAULT '{}',
    fund_held    bigint[] NOT NULL DEFAULT '{}',
    fund_expires bigint[] NOT NULL DEFAULT '{}',
    -- Spent beyond every grant.
    debt       bigint NOT NULL DEFAULT 0 CHECK (debt >= 0),
    held       bigint NOT NULL DEFAULT 0 CHECK (held >= 0),
    -- What running calls may cost beyond what they hold.
    exposure   bigint NOT NULL DEFAULT 0 CHECK (exposure >= 0),
    -- When an expiry left the account with nothing; empty once it was given more.
    lapsed_at  bigint,
    -- The latest time it was asked about: a clock that is set back revives nothing.
    latest     bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX accounts_by_time ON accounts (created_at, id);
CREATE INDEX accounts_frozen ON accounts (id) WHERE frozen;

-- Only the digest of a key is kept; the prefix is for showing.
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

-- What an account was given. What is left of it stands with the account.
CREATE TABLE credit_grants (
    seq        bigint GENERATED ALWAYS AS IDENTITY,
    id         text PRIMARY KEY,
    account_id text NOT NULL REFERENCES accounts (id),
    amount     bigint NOT NULL CHECK (amount > 0),
    expires_at bigint,
    reason     text,
    created_at bigint NOT NULL,
    -- The operator's own number for a payment: the same one gives credit once.
    reference  text,
    UNIQUE (account_id, reference)
);
CREATE INDEX credit_grants_by_account ON credit_grants (account_id, seq);
CREATE INDEX credit_grants_by_expiry ON credit_grants (expires_at) WHERE expires_at IS NOT NULL;

-- Every change of a balance, in order; nothing here is ever changed or removed.
CREATE TABLE ledger_entries (
    seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id    text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('grant', 'charge', 'expiry', 'reversal')),
    -- The grant, or the call.
    ref           text NOT NULL,
    delta         bigint NOT NULL,
    -- The sum of this account's entries up to here.
    balance_after bigint NOT NULL,
    at            bigint NOT NULL
);
CREATE INDEX ledger_entries_by_account ON ledger_entries (account_id, seq);
-- A grant and a call are entered once; a grant can expire in parts.
CREATE UNIQUE INDEX ledger_entries_once ON ledger_entries (ref, kind) WHERE kind <> 'expiry';

-- What is set aside for calls that are running, and by which gateway.
CREATE TABLE holds (
    id         bigint PRIMARY KEY,
    account_id text NOT NULL,
    slot       integer NOT NULL,
    epoch      bigint NOT NULL,
    amount     bigint NOT NULL,
    -- What the call may cost beyond that.
    risk       bigint NOT NULL,
    -- When it was admitted, in seconds: grants that had not expired by then pay for all of the call.
    admitted_at bigint NOT NULL,
    -- How much of which grant.
    parts_of   text[] NOT NULL,
    parts      bigint[] NOT NULL,
    model      text NOT NULL,
    -- Its places in the minute: time, tokens and step of each, one after the other.
    places     bigint[] NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX holds_by_gateway ON holds (slot, epoch);
CREATE INDEX holds_by_account ON holds (account_id);

-- One row for each call that was admitted, whatever became of it.
CREATE TABLE calls (
    id              bigint PRIMARY KEY,
    -- What the client was told to quote; it may repeat itself.
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
    -- Empty where nothing was charged.
    prompt          bigint,
    cached          bigint,
    completion      bigint,
    reasoning       bigint,
    cost            bigint,
    balance_before  bigint,
    balance_after   bigint,
    -- The grants it was paid from, and how much of each.
    paid_from       text[],
    paid            bigint[],
    -- Upstreams that failed, and steps that were taken, in order, as JSON.
    attempts        text,
    steps           text,
    -- How a hybrid came to the model that answered, as JSON.
    decision        text,
    places          bigint[],
    -- Prompt tokens that the provider wrote to its cache, and those of them that it keeps for an hour.
    cache_write     bigint,
    cache_write_1h  bigint,
    -- The whole price list as JSON, where it is more than input, cached and output price: rates and thresholds in
    -- pico-dollars, fees in nano-dollars.
    prices          text,
    -- What the provider charges the operator, where the configuration has its prices.
    provider_cost   bigint
);
CREATE INDEX calls_by_request ON calls (request_id);
CREATE INDEX calls_by_account ON calls (account_id, ended_ms);
CREATE INDEX calls_by_time ON calls (ended_ms);
-- Calls of an outcome, newest first. Most are answered and found without it.
CREATE INDEX calls_by_outcome ON calls (outcome, ended_ms) WHERE outcome <> 'answered';
CREATE INDEX calls_by_account_and_outcome ON calls (account_id, outcome, ended_ms)
    WHERE outcome <> 'answered';

-- Calls added up: those of one key with one model on one day. Every call counts; those that were charged
-- have tokens and a cost. Written in the transactions that write calls, which have locked the account.
CREATE TABLE usage_days (
    account_id text NOT NULL,
    -- Of UTC, e.g. `2026-11-16`.
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

-- What the operator decided about a model; a missing row leaves it to the catalog.
CREATE TABLE model_settings (
    model_id text PRIMARY KEY,
    enabled  boolean NOT NULL,
    unlisted boolean
);

-- Ceilings a minute. An empty account or model stands for all of them.
CREATE TABLE limits (
    account_id text NOT NULL,
    model_id   text NOT NULL,
    rpm        bigint CHECK (rpm > 0),
    tpm        bigint CHECK (tpm > 0),
    PRIMARY KEY (account_id, model_id)
);

-- Rises with every change of the two tables above.
CREATE TABLE settings (
    version bigint NOT NULL
);
INSERT INTO settings VALUES (1);

-- The gateways that live. Each has a slot, which is part of its call numbers, and a lease (the epoch) that
-- it renews by counting `beats` up. The others watch the count by their own monotonic clocks: a gateway
-- whose count stands still for the length of a lease is dead, and its holds are released by the others.
CREATE TABLE gateways (
    slot    integer PRIMARY KEY,
    epoch   bigint NOT NULL,
    beats   bigint NOT NULL DEFAULT 0,
    -- By the server's clock, which can be set: used only where every slot is taken.
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 10);
CREATE SEQUENCE gateway_epochs;

-- The last batch of each stream of batches of each run of a gateway. One that is late, because it was
-- sent again on another connection meanwhile, is known by its number and refused.
CREATE TABLE lanes (
    run    bigint NOT NULL,
    lane   integer NOT NULL,
    number bigint NOT NULL,
    at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run, lane)
) WITH (fillfactor = 10);

-- Emptied by a crash, because it is not logged: whoever finds another number than before knows that
-- what was committed in between without waiting for the disk may be gone.
CREATE UNLOGGED TABLE lives (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    life     bigint NOT NULL
);
