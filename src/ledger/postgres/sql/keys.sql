-- Keys and projects. Each change locks its account, so that it is one after the other for each account.

-- Adds a key, unless the account has p_most live keys or the project is not one of the account.
CREATE OR REPLACE FUNCTION create_key(p_key api_keys, p_most bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', '1500', true);
    PERFORM 1 FROM accounts WHERE id = p_key.account_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN 'missing';
    END IF;
    IF (SELECT count(*) FROM api_keys WHERE account_id = p_key.account_id AND state <> 'deleted') >= p_most THEN
        RETURN 'full';
    END IF;
    IF NOT is_open_project(p_key) THEN
        RETURN 'project';
    END IF;
    INSERT INTO api_keys SELECT p_key.*;
    RETURN 'created';
END $$;

-- Whether a key's project is one of its account, and not archived.
CREATE OR REPLACE FUNCTION is_open_project(p_key api_keys) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT p_key.project_id IS NULL OR EXISTS (SELECT 1 FROM projects
        WHERE id = p_key.project_id AND account_id = p_key.account_id AND NOT archived)
$$;

-- Sets the named columns of a live key. Gateways have cached the terms with the account, so its version increases.
CREATE OR REPLACE FUNCTION change_key(p_id text, p_change jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    changed api_keys;
BEGIN
    PERFORM set_config('lock_timeout', '1500', true);
    UPDATE accounts SET version = version + 1 WHERE id = (SELECT account_id FROM api_keys WHERE id = p_id);
    SELECT * INTO changed FROM api_keys WHERE id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'missing';
    ELSIF changed.state = 'deleted' THEN
        RETURN 'deleted';
    END IF;
    changed := jsonb_populate_record(changed, p_change);
    IF p_change ? 'project_id' AND NOT is_open_project(changed) THEN
        RETURN 'project';
    END IF;
    UPDATE api_keys SET name = changed.name, project_id = changed.project_id, expires_at = changed.expires_at,
        models = changed.models, rpm = changed.rpm, tpm = changed.tpm
    WHERE id = p_id;
    RETURN 'changed';
END $$;

-- Archives a project, unless live keys belong to it.
CREATE OR REPLACE FUNCTION archive_project(p_id text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', '1500', true);
    PERFORM 1 FROM accounts WHERE id = (SELECT account_id FROM projects WHERE id = p_id) FOR NO KEY UPDATE;
    IF EXISTS (SELECT 1 FROM api_keys WHERE project_id = p_id AND state <> 'deleted') THEN
        RETURN 'in use';
    END IF;
    UPDATE projects SET archived = true WHERE id = p_id;
    RETURN CASE WHEN FOUND THEN 'archived' ELSE 'missing' END;
END $$;
