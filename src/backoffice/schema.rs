//! The tables, in words that both databases understand but for one.
//!
//! Times are seconds since 1970 (`…_at`) or milliseconds (`…_ms`), digests are in hexadecimal.

/// The one word is the type of a number that rises with every row and is never given twice.
macro_rules! tables {
    ($rising:literal) => {
        concat!(
            "
            CREATE TABLE backoffice_people (
                id          TEXT PRIMARY KEY NOT NULL,
                -- As it was typed, and in lower case: one address is one person's.
                email       TEXT NOT NULL,
                email_key   TEXT NOT NULL UNIQUE,
                name        TEXT,
                -- A hash with its parameters; none where nobody can sign in by a password.
                password    TEXT,
                password_at BIGINT NOT NULL,
                role        TEXT NOT NULL,
                account_id  TEXT NOT NULL,
                created_at  BIGINT NOT NULL
            );
            CREATE TABLE backoffice_sessions (
                digest     TEXT PRIMARY KEY NOT NULL,
                -- None where somebody came with the operator token. The role counts for these only.
                person_id  TEXT,
                role       TEXT NOT NULL,
                agent      TEXT NOT NULL,
                began_at   BIGINT NOT NULL,
                expires_at BIGINT NOT NULL
            );
            CREATE INDEX backoffice_sessions_by_person ON backoffice_sessions (person_id);
            CREATE INDEX backoffice_sessions_by_end ON backoffice_sessions (expires_at);
            -- Who is known to an issuer of OpenID Connect, by what it calls them.
            CREATE TABLE backoffice_identities (
                issuer       TEXT NOT NULL,
                subject      TEXT NOT NULL,
                person_id    TEXT NOT NULL,
                connected_at BIGINT NOT NULL,
                PRIMARY KEY (issuer, subject)
            );
            CREATE INDEX backoffice_identities_by_person ON backoffice_identities (person_id);
            -- What may be used once and has been, until it would not be taken any more anyway.
            CREATE TABLE backoffice_spent (
                digest     TEXT PRIMARY KEY NOT NULL,
                -- Tells one who tries again from another.
                claim      TEXT NOT NULL,
                expires_at BIGINT NOT NULL
            );
            CREATE INDEX backoffice_spent_by_end ON backoffice_spent (expires_at);
            CREATE TABLE backoffice_actions (
                seq          ",
            $rising,
            ",
                -- Tells an action that is written twice from two alike.
                id           TEXT NOT NULL UNIQUE,
                at_ms        BIGINT NOT NULL,
                actor        TEXT NOT NULL,
                what         TEXT NOT NULL,
                subject      TEXT NOT NULL,
                value_before TEXT,
                value_after  TEXT
            );
            CREATE INDEX backoffice_actions_by_subject ON backoffice_actions (subject, seq);
            CREATE INDEX backoffice_people_by_account ON backoffice_people (account_id);
            CREATE INDEX backoffice_people_by_age ON backoffice_people (created_at, id);
            CREATE TABLE backoffice_links (
                -- Of the secret that is in the link alone.
                digest     TEXT PRIMARY KEY NOT NULL,
                kind       TEXT NOT NULL,
                email      TEXT NOT NULL,
                email_key  TEXT NOT NULL,
                name       TEXT,
                -- Whose password it sets, where somebody is known already.
                person_id  TEXT,
                -- Whom its holder becomes, where nobody is.
                account_id TEXT,
                role       TEXT,
                -- The operator who made it, if it was one.
                made_by    TEXT,
                expires_at BIGINT NOT NULL,
                -- Zero until it is used, and what tells one use from another.
                used_at    BIGINT NOT NULL,
                used_by    TEXT
            );
            CREATE INDEX backoffice_links_by_person ON backoffice_links (person_id);
            CREATE INDEX backoffice_links_by_account ON backoffice_links (account_id);
            CREATE INDEX backoffice_links_by_email ON backoffice_links (email_key);
            CREATE INDEX backoffice_links_by_end ON backoffice_links (expires_at);
            CREATE TABLE backoffice_checkouts (
                id          TEXT PRIMARY KEY NOT NULL,
                provider    TEXT NOT NULL,
                -- The provider's own name for it; none until it has told us.
                session     TEXT,
                account_id  TEXT NOT NULL,
                -- Who ordered it, by their address of then.
                person      TEXT NOT NULL,
                -- What was ordered and what was paid, in billionths of a dollar.
                amount      BIGINT NOT NULL,
                paid_amount BIGINT,
                created_at  BIGINT NOT NULL,
                paid_at     BIGINT,
                -- When the credit that was bought expires.
                expires_at  BIGINT,
                -- The credit that it has become.
                grant_id    TEXT
            );
            CREATE INDEX backoffice_checkouts_by_account ON backoffice_checkouts (account_id, created_at);
            CREATE INDEX backoffice_checkouts_uncredited ON backoffice_checkouts (paid_at)
                WHERE paid_at IS NOT NULL AND grant_id IS NULL;
            CREATE TABLE backoffice_alerts (
                seq       ",
            $rising,
            ",
                id        TEXT NOT NULL UNIQUE,
                kind      TEXT NOT NULL,
                subject   TEXT NOT NULL,
                -- How it is, as JSON.
                detail    TEXT NOT NULL,
                opened_at BIGINT NOT NULL,
                -- When it was last found to be so.
                seen_at   BIGINT NOT NULL,
                -- Empty while it is open.
                closed_at BIGINT,
                -- 1 where somebody is told of it; 0 where the same was told a moment ago.
                announced BIGINT NOT NULL
            );
            CREATE UNIQUE INDEX backoffice_alerts_open ON backoffice_alerts (kind, subject)
                WHERE closed_at IS NULL;
            CREATE INDEX backoffice_alerts_by_subject ON backoffice_alerts (kind, subject, opened_at);
            CREATE TABLE backoffice_deliveries (
                id         TEXT PRIMARY KEY NOT NULL,
                alert_id   TEXT NOT NULL,
                -- `opened` or `closed`.
                event      TEXT NOT NULL,
                channel    TEXT NOT NULL,
                recipient  TEXT NOT NULL,
                -- `waiting`, `delivered` or `given_up`.
                state      TEXT NOT NULL,
                attempts   BIGINT NOT NULL,
                next_at    BIGINT NOT NULL,
                -- When it was delivered or given up.
                done_at    BIGINT,
                last_error TEXT
            );
            CREATE INDEX backoffice_deliveries_by_alert ON backoffice_deliveries (alert_id);
            CREATE INDEX backoffice_deliveries_due ON backoffice_deliveries (next_at)
                WHERE state = 'waiting';
            "
        )
    };
}

/// One after the other, each once: the file remembers how many it has seen.
pub const IN_SQLITE: [&str; 1] = [tables!("INTEGER PRIMARY KEY AUTOINCREMENT")];

/// The same, and the database remembers it in `backoffice_schema`.
pub const IN_POSTGRES: [&str; 1] = [tables!("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")];
