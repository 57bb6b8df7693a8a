-- The present second. A test's gateways have a clock that is set by hand, and send its time.
CREATE OR REPLACE FUNCTION present_second(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(p_now, floor(extract(epoch FROM clock_timestamp()))::bigint)
$$;

-- One operation on the money of an account, as gateways send it: see operations.rs.
CREATE TYPE batch_step AS (
    -- `hold`, `extend`, `charge`, `release` (ends the call without a charge) or `cancel` (stores no call).
    kind                text,
    account_id          text,
    call_id             bigint,
    -- It may have been executed before: no reply was received.
    repeat              boolean,
    -- A hold or extension of a running call that is restored after a crash or a lost lease.
    renew               boolean,
    -- The terms of a hold or an extension.
    key_id              text,
    project_id          text,
    member_id           text,
    -- Digest of the presented secret, in hexadecimal digits.
    secret              text,
    settings_version    bigint,
    account_version     bigint,
    amount_nano_usd     bigint,
    worst_case_nano_usd bigint,
    overdraft_nano_usd  bigint,
    model               text,
    reservations        reservation[],
    admitted_at         bigint,
    -- Of a call with an idempotency key: on a hold, an extension and a charge.
    idempotency_key     text,
    request_hash        text,
    -- The row of a call that ends, by column names.
    call                jsonb,
    -- The response to store with a charge, and until when.
    response_body       text,
    response_until_ms   bigint
);

-- What all steps of a batch share: the gateway's lease, whether it is alive, and the version of the settings.
CREATE TYPE batch_context AS (
    slot             integer,
    epoch            bigint,
    is_alive         boolean,
    settings_version bigint
);

-- The result of a step: the account as it is afterwards, the reply, and the rows to insert at the end of the batch.
CREATE TYPE step_result AS (
    account  accounts,
    reply    jsonb,
    new_hold holds,
    new_call jsonb,
    -- The budgets of the batch as they are afterwards; NULL if the step has not changed them.
    budgets  budgets[]
);
