//! The tables. SQLite and PostgreSQL share one text, except for the type of sequence numbers.
//!
//! Times are in seconds since 1970 (`…_at`) or in milliseconds (`…_ms`); digests are in hexadecimal.

/// The schema text; `$sequence` is the column type of a number that rises with every row and is never reused.
macro_rules! tables {
    ($sequence:literal) => {
        concat!(
            "
            CREATE TABLE backoffice_people (
                id          TEXT PRIMARY KEY NOT NULL,
                -- `email` as it was typed; `email_key` in lower case, unique among people.
                email       TEXT NOT NULL,
                email_key   TEXT NOT NULL UNIQUE,
                name        TEXT,
                -- A hash with its parameters (PHC); NULL if the person cannot sign in with a password.
                password    TEXT,
                password_at BIGINT NOT NULL,
                role        TEXT NOT NULL,
                account_id  TEXT NOT NULL,
                -- What the person may do in the account: `owner`, `billing`, `developer` or `viewer`.
                team_role   TEXT NOT NULL,
                created_at  BIGINT NOT NULL
            );
            CREATE TABLE backoffice_sessions (
                digest     TEXT PRIMARY KEY NOT NULL,
                -- NULL for sessions of the operator token; only these use the column `role`.
                person_id  TEXT,
                role       TEXT NOT NULL,
                agent      TEXT NOT NULL,
                began_at   BIGINT NOT NULL,
                expires_at BIGINT NOT NULL
            );
            CREATE INDEX backoffice_sessions_by_person ON backoffice_sessions (person_id);
            CREATE INDEX backoffice_sessions_by_end ON backoffice_sessions (expires_at);
            -- People's identities with OpenID Connect issuers, by the `sub` claim.
            CREATE TABLE backoffice_identities (
                issuer       TEXT NOT NULL,
                subject      TEXT NOT NULL,
                person_id    TEXT NOT NULL,
                connected_at BIGINT NOT NULL,
                PRIMARY KEY (issuer, subject)
            );
            CREATE INDEX backoffice_identities_by_person ON backoffice_identities (person_id);
            -- Digests of one-time tokens that were used, kept until the tokens expire.
            CREATE TABLE backoffice_spent (
                digest     TEXT PRIMARY KEY NOT NULL,
                -- Random ID of the use, so that a retried transaction recognises its own row.
                claim      TEXT NOT NULL,
                expires_at BIGINT NOT NULL
            );
            CREATE INDEX backoffice_spent_by_end ON backoffice_spent (expires_at);
            -- Random secrets in hexadecimal. The one named `cookies` signs the portal's cookies.
            CREATE TABLE backoffice_secrets (
                name    TEXT PRIMARY KEY NOT NULL,
                secret  TEXT NOT NULL,
                made_at BIGINT NOT NULL
            );
            CREATE TABLE backoffice_actions (
                seq          ",
            $sequence,
            ",
                -- Makes a retried insert idempotent: two equal actions have different IDs.
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
                -- SHA-256 of the secret, which is only in the link itself.
                digest     TEXT PRIMARY KEY NOT NULL,
                kind       TEXT NOT NULL,
                email      TEXT NOT NULL,
                email_key  TEXT NOT NULL,
                name       TEXT,
                -- The person whose password a `reset` link sets.
                person_id  TEXT,
                -- Account and roles of the person whom an `invitation` or `proof` link creates.
                account_id TEXT,
                role       TEXT,
                team_role  TEXT,
                -- E-mail address of the operator or member who made the link; NULL if it was requested by a visitor.
                made_by    TEXT,
                expires_at BIGINT NOT NULL,
                -- `used_at` is 0 until the link is used; `used_by` is a random ID of that use.
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
                -- The provider's ID of the checkout session; NULL until the provider has returned it.
                session     TEXT,
                account_id  TEXT NOT NULL,
                -- E-mail address of the person who ordered, as it was at the time.
                person      TEXT NOT NULL,
                -- Ordered and paid amount in nano-dollars.
                amount      BIGINT NOT NULL,
                paid_amount BIGINT,
                created_at  BIGINT NOT NULL,
                paid_at     BIGINT,
                -- When the purchased credit expires.
                expires_at  BIGINT,
                -- The grant that credits the payment; NULL until it is made.
                grant_id    TEXT
            );
            CREATE INDEX backoffice_checkouts_by_account ON backoffice_checkouts (account_id, created_at);
            CREATE INDEX backoffice_checkouts_uncredited ON backoffice_checkouts (paid_at)
                WHERE paid_at IS NOT NULL AND grant_id IS NULL;
            CREATE TABLE backoffice_alerts (
                seq       ",
            $sequence,
            ",
                id        TEXT NOT NULL UNIQUE,
                kind      TEXT NOT NULL,
                subject   TEXT NOT NULL,
                -- Details of the condition as of `seen_at`, as JSON.
                detail    TEXT NOT NULL,
                opened_at BIGINT NOT NULL,
                -- When the condition was last found to hold.
                seen_at   BIGINT NOT NULL,
                -- NULL while the alert is open.
                closed_at BIGINT,
                -- 1 if notifications are sent; 0 if the same alert was announced shortly before.
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
            -- What operators changed in the configuration: each version has all changes at its time.
            CREATE TABLE backoffice_config_versions (
                number  BIGINT PRIMARY KEY NOT NULL,
                id      TEXT NOT NULL UNIQUE,
                at_ms   BIGINT NOT NULL,
                actor   TEXT NOT NULL,
                note    TEXT NOT NULL,
                -- JSON.
                content TEXT NOT NULL
            );
            -- Which version each gateway uses; `problem` is why it does not use the newest.
            CREATE TABLE backoffice_config_gateways (
                gateway TEXT PRIMARY KEY NOT NULL,
                number  BIGINT NOT NULL,
                problem TEXT,
                seen_at BIGINT NOT NULL
            );
            "
        )
    };
}

/// The schema for SQLite; the file stores its version in `user_version`.
pub(crate) const SQLITE: &str = tables!("INTEGER PRIMARY KEY AUTOINCREMENT");

/// The schema for PostgreSQL; the database stores its version in `backoffice_schema`.
pub(crate) const POSTGRES: &str = tables!("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY");
