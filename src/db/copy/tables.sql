-- The import of the files of a gateway into this database, if there was one: at most one row. Gateways do not start
-- before it is finished.
CREATE TABLE imports (
    only_one    boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    -- A digest of what the files contain, so that an import continues from the same files only.
    source      text NOT NULL,
    began_at    bigint NOT NULL DEFAULT extract(epoch FROM now())::bigint,
    -- NULL until everything is copied and compared.
    finished_at bigint
);

-- How far each table is copied. Written in the transactions that copy rows.
CREATE TABLE import_tables (
    table_name  text PRIMARY KEY,
    copied_rows bigint NOT NULL DEFAULT 0,
    -- The key of the last copied row, as a JSON array; NULL at the beginning.
    last_key    text
);
