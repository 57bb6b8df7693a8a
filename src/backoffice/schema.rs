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
            -- Authenticator apps of people: their second factor for signing in with a password.
            CREATE TABLE backoffice_factors (
                person_id    TEXT PRIMARY KEY NOT NULL,
                -- In base32, as it is: codes are computed from it.
                secret       TEXT NOT NULL,
                -- The session that sets it up. It does not count until a code confirms it.
                session      TEXT NOT NULL,
                began_at     BIGINT NOT NULL,
                confirmed_at BIGINT,
                -- The time step of the last code that was accepted, and a random ID of that use.
                last_step    BIGINT NOT NULL,
                last_use     TEXT,
                -- Wrong codes of the app since the last right one, and when the day began in which they are counted.
                wrong_codes  BIGINT NOT NULL DEFAULT 0,
                wrong_since  BIGINT NOT NULL DEFAULT 0
            );
            -- Recovery codes, each of which can be used once instead of a code from the app.
            CREATE TABLE backoffice_recovery_codes (
                -- SHA-256 of the person's ID and the code.
                digest    TEXT PRIMARY KEY NOT NULL,
                person_id TEXT NOT NULL,
                -- Random ID of the use; NULL until then.
                used_by   TEXT
            );
            CREATE INDEX backoffice_recovery_codes_by_person ON backoffice_recovery_codes (person_id);
            -- Digests of one-time tokens that were used, kept until the tokens expire; and keyed hashes of addresses and
            -- identities that have got starter credit, kept for ever.
            CREATE TABLE backoffice_spent (
                digest     TEXT PRIMARY KEY NOT NULL,
                -- Random ID of the use, so that a retried transaction recognises its own row; or the account that got the
                -- starter credit.
                claim      TEXT NOT NULL,
                expires_at BIGINT NOT NULL
            );
            CREATE INDEX backoffice_spent_by_end ON backoffice_spent (expires_at);
            -- Random secrets in hexadecimal. The one named `cookies` signs the portal's cookies, `starter credit` is the key
            -- of the hashes of those who got it.
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
            CREATE INDEX backoffice_actions_by_actor ON backoffice_actions (actor);
            CREATE INDEX backoffice_people_by_account ON backoffice_people (account_id);
            CREATE INDEX backoffice_people_by_age ON backoffice_people (created_at, id);
            CREATE TABLE backoffice_links (
                -- SHA-256 of the secret, which is only in the link itself.
                digest     TEXT PRIMARY KEY NOT NULL,
                kind       TEXT NOT NULL,
                email      TEXT NOT NULL,
                email_key  TEXT NOT NULL,
                name       TEXT,
                -- The person whose password a `reset` link sets, or whose address an `email` link changes.
                person_id  TEXT,
                -- Account and roles of the person whom an `invitation` or `proof` link creates.
                account_id TEXT,
                role       TEXT,
                team_role  TEXT,
                -- Email address of the operator or member who made the link; NULL if it was requested by a visitor.
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
                -- Email address of the person who ordered, as it was at the time.
                person      TEXT NOT NULL,
                -- Ordered and paid amount in nano-dollars.
                amount      BIGINT NOT NULL,
                paid_amount BIGINT,
                created_at  BIGINT NOT NULL,
                paid_at     BIGINT,
                -- When the purchased credit expires.
                expires_at  BIGINT,
                -- The grant that credits the payment; NULL until it is made.
                grant_id    TEXT,
                -- 1 for an automatic top-up: a payment with a saved card, without a person.
                automatic   BIGINT NOT NULL,
                -- The consent to auto top-up (`backoffice_top_ups`): of an automatic one, that under which it was begun;
                -- of an order, that for which the card is saved once it is paid, or NULL.
                consent_id  TEXT,
                -- When and why an automatic payment failed; NULL while it is not known or was paid.
                failed_at   BIGINT,
                failure     TEXT,
                -- Number of the receipt, e.g. `R-2026-000123`; given with the payment, without gaps in a year.
                receipt     TEXT
            );
            CREATE INDEX backoffice_checkouts_by_account ON backoffice_checkouts (account_id, created_at);
            CREATE INDEX backoffice_checkouts_uncredited ON backoffice_checkouts (paid_at)
                WHERE paid_at IS NOT NULL AND grant_id IS NULL;
            CREATE UNIQUE INDEX backoffice_checkouts_by_receipt ON backoffice_checkouts (receipt)
                WHERE receipt IS NOT NULL;
            -- Which automatic payments has an account begun lately?
            CREATE INDEX backoffice_checkouts_automatic ON backoffice_checkouts (account_id, created_at)
                WHERE automatic = 1;
            -- Which automatic payments are neither failed nor credited?
            CREATE INDEX backoffice_checkouts_attempts ON backoffice_checkouts (account_id)
                WHERE automatic = 1 AND failed_at IS NULL AND grant_id IS NULL;
            -- The last number that was given, by what is numbered, e.g. `receipts of 2026`.
            CREATE TABLE backoffice_numbers (
                name TEXT PRIMARY KEY NOT NULL,
                last BIGINT NOT NULL
            );
            -- The customer's name and address on receipts and statements.
            CREATE TABLE backoffice_billing_details (
                account_id TEXT PRIMARY KEY NOT NULL,
                bill_to    TEXT NOT NULL,
                changed_at BIGINT NOT NULL
            );
            -- Statements of past months as they were issued, as JSON. They never change.
            CREATE TABLE backoffice_statements (
                account_id TEXT NOT NULL,
                -- E.g. `2026-10`.
                month      TEXT NOT NULL,
                content    TEXT NOT NULL,
                issued_at  BIGINT NOT NULL,
                PRIMARY KEY (account_id, month)
            );
            -- Automatic top-ups: below `threshold`, `amount` is bought, at most `monthly_max` in a calendar month (UTC).
            CREATE TABLE backoffice_top_ups (
                account_id  TEXT PRIMARY KEY NOT NULL,
                -- `waiting` for a card to be saved, `on`, `paused` after a failure, or `off`.
                state       TEXT NOT NULL,
                -- Amounts in nano-dollars.
                threshold   BIGINT NOT NULL,
                amount      BIGINT NOT NULL,
                monthly_max BIGINT NOT NULL,
                -- The words that were agreed to, by whom and when, and a random ID of that consent.
                consent     TEXT NOT NULL,
                consent_id  TEXT NOT NULL,
                consent_by  TEXT NOT NULL,
                consent_at  BIGINT NOT NULL,
                -- The provider, and its IDs of the customer and of the payment with which the card was saved; NULL until
                -- one is saved. The card is that of `consent_by`.
                provider    TEXT NOT NULL,
                customer    TEXT,
                card        TEXT,
                -- Why it is paused.
                problem     TEXT,
                -- When a gateway looks at it next, or until when one has claimed it.
                next_at     BIGINT NOT NULL,
                -- How often it was claimed; decides which gateway's claim counts.
                claims      BIGINT NOT NULL,
                -- The first second of the last month for which people were told that its maximum is reached; or 0.
                told_month  BIGINT NOT NULL
            );
            CREATE INDEX backoffice_top_ups_due ON backoffice_top_ups (next_at);
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
            -- Requests that got an error and were not admitted as calls: the last thousand of each account.
            CREATE TABLE backoffice_refused (
                id         TEXT PRIMARY KEY NOT NULL,
                at_ms      BIGINT NOT NULL,
                request_id TEXT NOT NULL,
                account_id TEXT NOT NULL,
                key_id     TEXT NOT NULL,
                -- Project and member of the key at that time.
                project_id TEXT,
                member_id  TEXT,
                path       TEXT NOT NULL,
                model      TEXT,
                status     BIGINT NOT NULL,
                -- The code of the error, or its type if that says more.
                code       TEXT NOT NULL,
                param      TEXT,
                message    TEXT NOT NULL,
                agent      TEXT,
                took_ms    BIGINT NOT NULL
            );
            -- The last ones of an account, those with a request ID, and the last ones of all accounts.
            CREATE INDEX backoffice_refused_by_account ON backoffice_refused (account_id, at_ms, id);
            CREATE INDEX backoffice_refused_by_request ON backoffice_refused (request_id);
            CREATE INDEX backoffice_refused_by_time ON backoffice_refused (at_ms, id);
            -- How many there were in each minute since 1970, as each gateway process has counted them.
            CREATE TABLE backoffice_refused_counts (
                account_id TEXT NOT NULL,
                minute     BIGINT NOT NULL,
                key_id     TEXT NOT NULL,
                status     BIGINT NOT NULL,
                code       TEXT NOT NULL,
                writer     TEXT NOT NULL,
                requests   BIGINT NOT NULL,
                PRIMARY KEY (account_id, minute, key_id, status, code, writer)
            );
            CREATE INDEX backoffice_refused_counts_by_minute ON backoffice_refused_counts (minute);
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
