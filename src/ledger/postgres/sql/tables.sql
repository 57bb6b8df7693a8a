-- The ledger that all gateways share. Units are in the names: `…_nano_usd` are billionths of a dollar, `…_pico_usd`
-- trillionths (prices of one token), `…_ms` milliseconds and `…_at` seconds since 1970. docs/SQL.md has questions and
-- queries.

-- What is left of a grant, including the part that running calls hold.
CREATE TYPE fund AS (
    grant_id           text,
    remaining_nano_usd bigint,
    held_nano_usd      bigint,
    -- The greatest number stands for no expiry.
    expires_at         bigint
);

-- An amount of a grant: what a hold takes of it, or what a charge was paid from it.
CREATE TYPE grant_part AS (
    grant_id        text,
    amount_nano_usd bigint
);

-- A rate-limit reservation of one step of a call.
CREATE TYPE reservation AS (
    at_ms  bigint,
    tokens bigint,
    step   integer
);

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
    -- In order of use: the earliest expiry first, those without one last. Used-up grants are removed.
    funds      fund[] NOT NULL DEFAULT '{}',
    -- Charges beyond all grants.
    debt_nano_usd     bigint NOT NULL DEFAULT 0 CHECK (debt_nano_usd >= 0),
    held_nano_usd     bigint NOT NULL DEFAULT 0 CHECK (held_nano_usd >= 0),
    -- The sum of what running calls may cost beyond their holds.
    exposure_nano_usd bigint NOT NULL DEFAULT 0 CHECK (exposure_nano_usd >= 0),
    -- When an expiry left the account without credit; NULL after the next grant.
    lapsed_at  bigint,
    -- Whether there are budgets to look at.
    has_budgets boolean NOT NULL DEFAULT false,
    -- The latest time that was used: a clock that is set back does not revive expired credit.
    latest_at  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX accounts_by_time ON accounts (created_at, id);
CREATE INDEX accounts_frozen ON accounts (id) WHERE frozen;

-- What keys belong to, beside the default project, which has no row.
CREATE TABLE projects (
    id         text PRIMARY KEY,
    account_id text NOT NULL REFERENCES accounts (id),
    name       text NOT NULL,
    created_at bigint NOT NULL,
    -- An archived project has no keys. Its calls stay its own.
    archived   boolean NOT NULL DEFAULT false
);
CREATE INDEX projects_by_account ON projects (account_id, created_at, id);

-- Only the digest of a key is stored; the prefix is for display.
CREATE TABLE api_keys (
    id         text PRIMARY KEY,
    account_id text NOT NULL REFERENCES accounts (id),
    name       text NOT NULL,
    prefix     text NOT NULL,
    state      text NOT NULL CHECK (state IN ('active', 'disabled', 'deleted')),
    created_at bigint NOT NULL,
    digest     bytea NOT NULL UNIQUE,
    -- NULL is the default project.
    project_id text REFERENCES projects (id),
    -- The person who made it; NULL for a service key.
    member_id  text,
    -- The rest binds the key in addition to what binds its account. NULL binds nothing.
    expires_at bigint,
    -- JSON: the IDs of the models that it may call.
    models     text,
    rpm        bigint CHECK (rpm > 0),
    tpm        bigint CHECK (tpm > 0),
    -- The secret that the last rotation replaced, and the time from which on it is refused. NULL if there is none.
    previous_prefix text,
    previous_digest bytea UNIQUE,
    previous_until  bigint
);
-- The keys of an account, page by page; and those that count against its maximum.
CREATE INDEX api_keys_by_account ON api_keys (account_id, created_at, id);
CREATE INDEX api_keys_live ON api_keys (account_id, created_at, id) WHERE state <> 'deleted';

-- How much an account, a project, a member or a key may spend in a period. Changed only while the account is locked.
CREATE TABLE budgets (
    id              text PRIMARY KEY,
    account_id      text NOT NULL REFERENCES accounts (id),
    scope           text NOT NULL CHECK (scope IN ('account', 'project', 'member', 'key')),
    -- The account, project, member or key; `default` is the default project.
    scope_id        text NOT NULL,
    name            text NOT NULL,
    amount_nano_usd bigint NOT NULL CHECK (amount_nano_usd > 0),
    period          text NOT NULL CHECK (period IN ('day', 'week', 'month', 'total')),
    timezone        text NOT NULL,
    -- The first day of the week (1 Monday to 7 Sunday) or of the month.
    anchor          bigint,
    -- Refuses calls; a soft budget only alerts.
    hard            boolean NOT NULL,
    -- JSON: the percentages at which people are told.
    thresholds      text NOT NULL,
    created_at      bigint NOT NULL,
    -- The period that was last used; the greatest number stands for no end.
    period_start    bigint NOT NULL,
    period_end      bigint NOT NULL,
    -- Of the calls below it whose `held_at` is in that period: the costs of those that were charged, and the holds of
    -- those that run.
    spent_nano_usd    bigint NOT NULL,
    held_nano_usd     bigint NOT NULL DEFAULT 0,
    exposure_nano_usd bigint NOT NULL DEFAULT 0,
    UNIQUE (account_id, scope_id, scope, period)
) WITH (fillfactor = 70);

-- Grants as they were given. What is left of them is stored with the account.
CREATE TABLE credit_grants (
    seq        bigint GENERATED ALWAYS AS IDENTITY,
    id         text PRIMARY KEY,
    account_id text NOT NULL REFERENCES accounts (id),
    amount_nano_usd bigint NOT NULL CHECK (amount_nano_usd > 0),
    expires_at bigint,
    reason     text,
    created_at bigint NOT NULL,
    -- The operator's own ID of a payment: a reference adds credit once.
    reference  text,
    UNIQUE (account_id, reference)
);
CREATE INDEX credit_grants_by_account ON credit_grants (account_id, seq);
CREATE INDEX credit_grants_by_expiry ON credit_grants (expires_at) WHERE expires_at IS NOT NULL;

-- Numbers the entries of the ledger, those of charged calls included. An account's are drawn while its row is locked,
-- so they are in order.
CREATE SEQUENCE entry_seqs;

-- Grants, expiries and reversals in order. A charge is a row of `calls`, numbered from the same sequence: see the view
-- `ledger`. A charge that is taken back moves here, before its reversal. Not divided by months: without the charges it
-- is small, and its unique indexes are over all months.
CREATE TABLE ledger_entries (
    seq                    bigint PRIMARY KEY DEFAULT nextval('entry_seqs'),
    account_id             text NOT NULL,
    -- `opening` is the balance brought forward from calls and entries that were pruned.
    kind                   text NOT NULL CHECK (kind IN ('grant', 'charge', 'expiry', 'reversal', 'opening')),
    -- The grant's ID, or the call's number; of an opening, the first day that is not pruned.
    ref                    text NOT NULL,
    delta_nano_usd         bigint NOT NULL,
    -- The sum of this account's entries up to this one.
    balance_after_nano_usd bigint NOT NULL,
    at                     bigint NOT NULL
);
CREATE INDEX ledger_entries_by_account ON ledger_entries (account_id, seq);
-- Where does the ledger of an account begin, if what was before is pruned?
CREATE UNIQUE INDEX ledger_entries_opening ON ledger_entries (account_id) WHERE kind = 'opening';
-- A grant and a reversal are posted once; a grant can expire in parts.
CREATE UNIQUE INDEX ledger_entries_once ON ledger_entries (ref, kind)
    WHERE kind IN ('grant', 'charge', 'reversal');

-- The holds of running calls, and their gateways.
CREATE TABLE holds (
    id              bigint PRIMARY KEY,
    account_id      text NOT NULL,
    slot            integer NOT NULL,
    epoch           bigint NOT NULL,
    amount_nano_usd bigint NOT NULL,
    -- What the call may cost beyond the hold.
    risk_nano_usd   bigint NOT NULL,
    -- Grants that had not expired by then pay for all of the call.
    admitted_at     bigint NOT NULL,
    parts           grant_part[] NOT NULL,
    model           text NOT NULL,
    reservations    reservation[] NOT NULL,
    -- The client's `Idempotency-Key`, and SHA-256 of its request in hexadecimal digits.
    idempotency_key text,
    request_hash    text,
    -- What the call is charged to beside the account: see `calls`.
    key_id          text,
    project_id      text,
    member_id       text,
    -- What budgets count, and since when: this decides the period. More may be held of grants that have expired.
    held_at             bigint NOT NULL,
    counted_nano_usd    bigint NOT NULL,
    counted_risk_nano_usd bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX holds_by_gateway ON holds (slot, epoch);
CREATE INDEX holds_by_account ON holds (account_id);
-- Is a call with this idempotency key running?
CREATE INDEX holds_by_idempotency_key ON holds (account_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Every admitted call, whatever its outcome. A month of calls is a table: see months.sql.
CREATE TABLE calls (
    -- Begins with the time of admission: milliseconds since 1970, shifted left by 19 bits.
    id                     bigint PRIMARY KEY,
    -- The position of its charge in the view `ledger`; NULL if nothing was charged.
    entry_seq              bigint,
    -- The `X-Request-ID` of the response; not unique, because clients may choose it.
    request_id             text NOT NULL,
    account_id             text NOT NULL,
    key_id                 text NOT NULL,
    -- What the key belonged to when the call was admitted: its project, NULL for the default one, and the person who made
    -- it, NULL for a service key.
    project_id             text,
    member_id              text,
    model                  text NOT NULL,
    -- The model that a hybrid chose; otherwise the same as `model`.
    routed_model           text NOT NULL,
    -- The provider's name in the configuration; NULL if none was called.
    upstream               text,
    stream                 boolean NOT NULL,
    -- `answered`, or why not: docs/SQL.md has the list.
    outcome                text NOT NULL,
    failure                text,
    admitted_at_ms         bigint NOT NULL,
    first_byte_at_ms       bigint,
    ended_at_ms            bigint NOT NULL,
    reserved_tokens        bigint NOT NULL,
    held_nano_usd          bigint NOT NULL,
    -- The most that the call could have cost.
    worst_case_nano_usd    bigint NOT NULL,
    -- Prices of the routed model at admission, for one token.
    input_pico_usd         bigint NOT NULL,
    cached_input_pico_usd  bigint NOT NULL,
    output_pico_usd        bigint NOT NULL,
    -- From here on NULL if nothing was charged. `prompt_tokens` includes cached and written ones.
    prompt_tokens          bigint,
    cached_tokens          bigint,
    cache_write_tokens     bigint,
    cache_write_1h_tokens  bigint,
    completion_tokens      bigint,
    reasoning_tokens       bigint,
    cost_nano_usd          bigint,
    balance_after_nano_usd bigint,
    -- When its credit was held, or last raised, in seconds: decides in which period budgets count it.
    held_at                bigint,
    -- What the provider charges the operator; NULL if its prices are not configured.
    provider_cost_nano_usd bigint,
    -- What few calls have: failed `attempts`, `steps` of built-in tools, a hybrid's `decision`, the coding `agent` that
    -- sent the request, and `prices` if there are more than the three above; also the grants that `paid`, and rate-limit
    -- `reservations`.
    detail                 jsonb
) PARTITION BY RANGE (id);
-- Calls of months that have no table of their own.
CREATE TABLE calls_other PARTITION OF calls DEFAULT;
-- Which call had this X-Request-ID?
CREATE INDEX calls_by_request ON calls (request_id);
-- Which are the latest calls, of all accounts or of one?
CREATE INDEX calls_by_time ON calls (ended_at_ms);
CREATE INDEX calls_by_account ON calls (account_id, ended_at_ms);
-- What is the statement of an account?
CREATE INDEX calls_by_entry ON calls (account_id, entry_seq) WHERE entry_seq IS NOT NULL;
-- Which charges are new to an audit? A small index, which no other query uses by mistake: it has no order.
CREATE INDEX calls_by_seq ON calls USING brin (entry_seq) WITH (autosummarize = on);
-- Which calls failed lately? Most calls are answered, and have no entry in these.
CREATE INDEX calls_not_answered ON calls (outcome, ended_at_ms) WHERE outcome <> 'answered';
CREATE INDEX calls_not_answered_by_account ON calls (account_id, outcome, ended_at_ms)
    WHERE outcome <> 'answered';

-- Totals of a key's calls with one model on one day. They remain when calls are pruned. Written in the transactions
-- that write calls, which have locked the account.
CREATE TABLE usage_days (
    account_id             text NOT NULL,
    -- In UTC, e.g. `2026-11-16`.
    day                    text COLLATE "C" NOT NULL,
    model                  text COLLATE "C" NOT NULL,
    key_id                 text COLLATE "C" NOT NULL,
    -- `default` is the default project.
    project_id             text COLLATE "C" NOT NULL,
    calls                  bigint NOT NULL,
    -- Tokens and cost are those of charged calls.
    charged_calls          bigint NOT NULL,
    prompt_tokens          bigint NOT NULL,
    cached_tokens          bigint NOT NULL,
    cache_write_tokens     bigint NOT NULL,
    completion_tokens      bigint NOT NULL,
    reasoning_tokens       bigint NOT NULL,
    cost_nano_usd          bigint NOT NULL,
    -- Calls whose cost at the provider is known, that cost, and what was charged for them beyond it.
    costed_calls           bigint NOT NULL,
    provider_cost_nano_usd bigint NOT NULL,
    margin_nano_usd        bigint NOT NULL,
    last_ended_at_ms       bigint NOT NULL,
    PRIMARY KEY (account_id, day, model, key_id, project_id)
) WITH (fillfactor = 70);

-- Responses of charged calls that had an `Idempotency-Key`, for retries: written in the transaction of the charge. They
-- are text of customers, so they are deleted after `retries.keep_hours`.
CREATE TABLE idempotent_responses (
    account_id    text NOT NULL,
    -- As the client sent it.
    key           text COLLATE "C" NOT NULL,
    -- SHA-256 of the request's path and body.
    request_hash  bytea NOT NULL,
    call_id       bigint NOT NULL,
    stored_at_ms  bigint NOT NULL,
    kept_until_ms bigint NOT NULL,
    stream        boolean NOT NULL,
    -- The model that a hybrid chose.
    routed_model  text,
    body_bytes    bigint NOT NULL,
    -- NULL if it was too long, or had to make room for others. The key stays: a retry is not charged again.
    body          text,
    PRIMARY KEY (account_id, key)
);
-- Which are the oldest, and how much room do all take?
CREATE INDEX idempotent_responses_by_age ON idempotent_responses (stored_at_ms, body_bytes) WHERE body IS NOT NULL;
-- Which are too old?
CREATE INDEX idempotent_responses_by_end ON idempotent_responses (kept_until_ms);
-- Which is that of a call whose charge is taken back?
CREATE INDEX idempotent_responses_by_call ON idempotent_responses (call_id);

-- Requests that got the response of another call, which costs nothing: at most twenty of a call.
CREATE TABLE replays (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    call_id    bigint NOT NULL,
    account_id text NOT NULL,
    -- The `X-Request-ID` of the retry.
    request_id text NOT NULL,
    -- `attached` to a running call, or `replayed` after its end.
    kind       text NOT NULL,
    at_ms      bigint NOT NULL
);
-- Which requests got the response of a call?
CREATE INDEX replays_by_call ON replays (call_id);
-- Which call had this X-Request-ID?
CREATE INDEX replays_by_request ON replays (request_id);
-- How many of an account were there lately?
CREATE INDEX replays_by_account ON replays (account_id, at_ms);

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
