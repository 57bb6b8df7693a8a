-- Ceilings a minute. An empty account or model stands for all of them; the most specific row with a
-- value counts.
CREATE TABLE limits (
    account_id TEXT NOT NULL,
    model_id   TEXT NOT NULL,
    rpm        INTEGER CHECK (rpm > 0),
    tpm        INTEGER CHECK (tpm > 0),
    PRIMARY KEY (account_id, model_id)
) STRICT;
