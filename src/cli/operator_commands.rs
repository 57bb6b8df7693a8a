//! `tollgate account|member|key|project|credit|limit|model|request|route|secret`: commands that call the operator API of a running gateway.

use axum::http::Method;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{operator_client::call, table};

/// Which gateway a command calls, and how its response is printed.
#[derive(Args)]
pub(crate) struct Target {
    /// The URL of the operator API of a running gateway
    #[arg(
        long,
        env = "TOLLGATE_OPERATOR_URL",
        default_value = "http://127.0.0.1:9090",
        global = true
    )]
    operator_url: String,
    /// Print the API's response as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
pub(crate) enum AccountCommand {
    /// Create an account
    Create {
        #[arg(long)]
        email: String,
        /// personal or business
        #[arg(long, default_value = "personal")]
        track: String,
        /// free, basic, standard, pro or max; flex on the business track
        #[arg(long, default_value = "free")]
        tier: String,
        #[arg(long)]
        name: Option<String>,
    },
    /// List all accounts
    List,
    /// Show one account with its balance
    Show { account: String },
    /// Move an account to another tier or track
    Change {
        account: String,
        #[arg(long)]
        tier: Option<String>,
        #[arg(long)]
        track: Option<String>,
    },
    /// Close an account: requests with its keys get 402 `no_account`
    Close { account: String },
    /// Reopen a closed account
    Reopen { account: String },
    /// List the people who can sign in to an account
    People { account: String },
    /// Create an invitation link to an account for a person; it is shown once
    Invite {
        account: String,
        email: String,
        /// What they may do in the account: owner, billing, developer or viewer
        #[arg(long, default_value = "owner", conflicts_with = "operator")]
        role: String,
        /// An owner who may also use the operator console
        #[arg(long)]
        operator: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum MemberCommand {
    /// List an account's members with their roles
    List { account: String },
    /// Change a member's role, with immediate effect
    Change {
        member: String,
        /// owner, billing, developer or viewer
        role: String,
    },
    /// Remove a member: ends their sessions and deletes the keys that they made
    Remove { member: String },
    /// Turn off the two-factor authentication of a member who has lost it
    ResetTwoFactor { member: String },
}

/// What binds a key beside its account; all of it is optional.
#[derive(Args)]
pub(crate) struct KeyTerms {
    /// The ID of the project that it belongs to; `default` is the default project
    #[arg(long)]
    project: Option<String>,
    /// When it expires, in ISO 8601, for example 2027-01-31T00:00:00Z
    #[arg(long)]
    expires_at: Option<String>,
    /// A model that it may call; can be given several times [default: all that the account may call]
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// Requests per minute, with all models together, beside those of the account
    #[arg(long)]
    rpm: Option<u32>,
    /// Tokens per minute, with all models together, beside those of the account
    #[arg(long)]
    tpm: Option<u32>,
}

impl KeyTerms {
    /// A body with what was given, and `name` if there is one.
    fn body(self, name: Option<String>) -> Value {
        let mut body = json!({});
        let models = (!self.models.is_empty()).then_some(self.models);
        for (field, value) in [
            ("name", name.map(Value::from)),
            ("project", self.project.map(Value::from)),
            ("expires_at", self.expires_at.map(Value::from)),
            ("models", models.map(Value::from)),
            ("rpm", self.rpm.map(Value::from)),
            ("tpm", self.tpm.map(Value::from)),
        ] {
            if let Some(value) = value {
                body[field] = value;
            }
        }
        body
    }
}

#[derive(Subcommand)]
pub(crate) enum ProjectCommand {
    /// Create a project, which keys can belong to
    Create { account: String, name: String },
    /// List an account's projects, archived ones too
    List { account: String },
    /// Rename a project
    Rename { project: String, name: String },
    /// Archive a project without keys; its usage stays its own
    Archive { project: String },
}

#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key; it is shown once
    Create {
        account: String,
        #[arg(long, default_value = "")]
        name: String,
        #[command(flatten)]
        terms: KeyTerms,
    },
    /// List an account's keys, newest first, at most 100 at a time
    List {
        account: String,
        /// Only keys older than this one: the last one of the list before
        #[arg(long, value_name = "KEY")]
        before: Option<String>,
        /// Only deleted keys
        #[arg(long)]
        deleted: bool,
    },
    /// Change a key, from the next request on
    Change {
        key: String,
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        terms: KeyTerms,
        /// Remove what binds the key: expires-at, models, rpm or tpm
        #[arg(long, value_name = "TERM", value_parser = ["expires-at", "models", "rpm", "tpm"])]
        clear: Vec<String>,
    },
    /// Give a key a new secret, which is shown once; the present one stays valid for a while
    Rotate {
        key: String,
        /// How many seconds the present secret stays valid, up to 30 days [default: 24 hours]
        #[arg(long, value_name = "SECONDS")]
        grace: Option<u32>,
    },
    /// Disable a key, from the next request on
    Disable { key: String },
    /// Enable a disabled key
    Enable { key: String },
    /// Delete a key permanently
    Delete { key: String },
}

#[derive(Subcommand)]
pub(crate) enum CreditCommand {
    /// Grant credit in US dollars
    Grant {
        account: String,
        /// US dollars, for example 10.00
        amount: String,
        /// When the credit expires, in ISO 8601, for example 2027-01-31T00:00:00Z
        #[arg(long)]
        expires_at: Option<String>,
        #[arg(long)]
        reason: Option<String>,
        /// Your own reference, e.g. of a payment; a repeated reference does not grant credit again
        #[arg(long)]
        reference: Option<String>,
    },
    /// List the grants of an account
    List { account: String },
}

#[derive(Subcommand)]
pub(crate) enum ModelCommand {
    /// List every model with its state
    List,
    /// Take a model out of service: not listed, and 404 when called
    Disable { model: String },
    /// Put a model back in service
    Enable { model: String },
    /// Hide a model from lists; it stays callable
    Unlist { model: String },
    /// List a hidden model again
    Relist { model: String },
}

#[derive(Subcommand)]
pub(crate) enum LimitCommand {
    /// Set ceilings; without --account or --model they apply to all accounts or models
    Set {
        #[arg(long)]
        account: Option<String>,
        #[arg(long)]
        model: Option<String>,
        /// Requests per minute
        #[arg(long)]
        rpm: Option<u32>,
        /// Tokens per minute
        #[arg(long)]
        tpm: Option<u32>,
    },
    /// Remove the ceilings of this account and model
    Clear {
        #[arg(long)]
        account: Option<String>,
        #[arg(long)]
        model: Option<String>,
    },
    /// List all ceilings that are set
    List,
}

#[derive(Subcommand)]
pub(crate) enum SecretCommand {
    /// Replace the secret by a new random one: sessions of the operator token end, and known browsers become unknown
    Rotate,
}

pub(crate) async fn account(target: &Target, command: AccountCommand) -> Result<(), String> {
    let one = |id: &str| format!("/operator/accounts/{}", segment(id));
    let invited = matches!(command, AccountCommand::Invite { .. });
    let (method, path, body) = match command {
        AccountCommand::Create {
            email,
            track,
            tier,
            name,
        } => {
            let body = json!({ "email": email, "track": track, "tier": tier, "name": name });
            (Method::POST, "/operator/accounts".into(), Some(body))
        }
        AccountCommand::List => (Method::GET, "/operator/accounts".into(), None),
        AccountCommand::Show { account } => (Method::GET, one(&account), None),
        AccountCommand::Change {
            account,
            tier,
            track,
        } => (
            Method::PATCH,
            one(&account),
            Some(json!({ "tier": tier, "track": track })),
        ),
        AccountCommand::Close { account } => (
            Method::PATCH,
            one(&account),
            Some(json!({ "closed": true })),
        ),
        AccountCommand::Reopen { account } => (
            Method::PATCH,
            one(&account),
            Some(json!({ "closed": false })),
        ),
        AccountCommand::People { account } => (Method::GET, one(&account) + "/people", None),
        AccountCommand::Invite {
            account,
            email,
            role,
            operator,
        } => {
            let role = if operator { "operator" } else { &*role };
            let body = json!({ "email": email, "role": role });
            (Method::POST, one(&account) + "/invitations", Some(body))
        }
    };
    send(target, method, &path, body).await?;
    if invited && !target.json {
        println!("\nThis is the only time the link is shown. Anyone who has it can sign in.");
    }
    Ok(())
}

pub(crate) async fn member(target: &Target, command: MemberCommand) -> Result<(), String> {
    let one = |id: &str| format!("/operator/members/{}", segment(id));
    let (method, path, body) = match command {
        MemberCommand::List { account } => {
            let path = format!("/operator/accounts/{}/members", segment(&account));
            (Method::GET, path, None)
        }
        MemberCommand::Change { member, role } => {
            let body = json!({ "role": role });
            (Method::PATCH, one(&member), Some(body))
        }
        MemberCommand::Remove { member } => (Method::DELETE, one(&member), None),
        MemberCommand::ResetTwoFactor { member } => {
            let path = format!("/operator/people/{}/second-factor", segment(&member));
            (Method::DELETE, path, None)
        }
    };
    send(target, method, &path, body).await
}

pub(crate) async fn key(target: &Target, command: KeyCommand) -> Result<(), String> {
    let of_account = |id: &str| format!("/operator/accounts/{}/keys", segment(id));
    let one = |id: &str, action: &str| format!("/operator/keys/{}{action}", segment(id));
    let is_shown = matches!(
        command,
        KeyCommand::Create { .. } | KeyCommand::Rotate { .. }
    );
    let (method, path, body) = match command {
        KeyCommand::Create {
            account,
            name,
            terms,
        } => (
            Method::POST,
            of_account(&account),
            Some(terms.body(Some(name))),
        ),
        KeyCommand::Change {
            key,
            name,
            terms,
            clear,
        } => {
            let mut body = terms.body(name);
            for term in clear {
                body[term.replace('-', "_")] = Value::Null;
            }
            (Method::PATCH, one(&key, ""), Some(body))
        }
        KeyCommand::List {
            account,
            before,
            deleted,
        } => {
            let before = before.map(|key| format!("before={}", segment(&key)));
            let deleted = deleted.then(|| "deleted=true".to_owned());
            let query: Vec<_> = before.into_iter().chain(deleted).collect();
            let path = format!("{}?{}", of_account(&account), query.join("&"));
            let response = target.call(Method::GET, &path, None).await?;
            print(target, &response);
            let last = response["data"].as_array().and_then(|keys| keys.last());
            let last = last.and_then(|key| key["id"].as_str());
            if let (Some(last), Some(true), false) =
                (last, response["has_more"].as_bool(), target.json)
            {
                println!("\nThere are older keys: add --before {last}");
            }
            return Ok(());
        }
        KeyCommand::Rotate { key, grace } => (
            Method::POST,
            one(&key, "/rotate"),
            Some(json!({ "grace_seconds": grace })),
        ),
        KeyCommand::Disable { key } => (Method::POST, one(&key, "/disable"), None),
        KeyCommand::Enable { key } => (Method::POST, one(&key, "/enable"), None),
        KeyCommand::Delete { key } => (Method::DELETE, one(&key, ""), None),
    };
    send(target, method, &path, body).await?;
    if is_shown && !target.json {
        println!("\nThis is the only time the key is shown. Store it now.");
    }
    Ok(())
}

pub(crate) async fn project(target: &Target, command: ProjectCommand) -> Result<(), String> {
    let of_account = |id: &str| format!("/operator/accounts/{}/projects", segment(id));
    let one = |id: &str| format!("/operator/projects/{}", segment(id));
    let named = |name: String| Some(json!({ "name": name }));
    let (method, path, body) = match command {
        ProjectCommand::Create { account, name } => {
            (Method::POST, of_account(&account), named(name))
        }
        ProjectCommand::List { account } => (Method::GET, of_account(&account), None),
        ProjectCommand::Rename { project, name } => (Method::PATCH, one(&project), named(name)),
        ProjectCommand::Archive { project } => (Method::DELETE, one(&project), None),
    };
    send(target, method, &path, body).await
}

pub(crate) async fn credit(target: &Target, command: CreditCommand) -> Result<(), String> {
    let of_account = |id: &str| format!("/operator/accounts/{}/grants", segment(id));
    let (method, path, body) = match command {
        CreditCommand::Grant {
            account,
            amount,
            expires_at,
            reason,
            reference,
        } => {
            let body = json!({
                "amount": amount, "expires_at": expires_at, "reason": reason,
                "reference": reference,
            });
            (Method::POST, of_account(&account), Some(body))
        }
        CreditCommand::List { account } => (Method::GET, of_account(&account), None),
    };
    send(target, method, &path, body).await
}

pub(crate) async fn model(target: &Target, command: ModelCommand) -> Result<(), String> {
    let set = |id: &str, body: Value| {
        (
            Method::PUT,
            format!("/operator/models/{}", segment(id)),
            Some(body),
        )
    };
    let (method, path, body) = match command {
        ModelCommand::List => (Method::GET, "/operator/models".into(), None),
        ModelCommand::Disable { model } => set(&model, json!({ "enabled": false })),
        ModelCommand::Enable { model } => set(&model, json!({ "enabled": true })),
        ModelCommand::Unlist { model } => set(&model, json!({ "unlisted": true })),
        ModelCommand::Relist { model } => set(&model, json!({ "unlisted": false })),
    };
    send(target, method, &path, body).await
}

pub(crate) async fn limit(target: &Target, command: LimitCommand) -> Result<(), String> {
    let (method, body) = match command {
        LimitCommand::Set {
            account,
            model,
            rpm,
            tpm,
        } => {
            let mut body = json!({ "account": account, "model": model });
            for (name, value) in [("rpm", rpm), ("tpm", tpm)] {
                if let Some(value) = value {
                    body[name] = value.into();
                }
            }
            (Method::PUT, Some(body))
        }
        LimitCommand::Clear { account, model } => {
            let body = json!({ "account": account, "model": model, "rpm": null, "tpm": null });
            (Method::PUT, Some(body))
        }
        LimitCommand::List => (Method::GET, None),
    };
    send(target, method, "/operator/limits", body).await
}

pub(crate) async fn secret(target: &Target, command: &SecretCommand) -> Result<(), String> {
    let path = match command {
        SecretCommand::Rotate => "/operator/secret/rotate",
    };
    send(target, Method::POST, path, None).await
}

pub(crate) async fn request(target: &Target, id: &str) -> Result<(), String> {
    let path = format!("/operator/requests/{}", segment(id));
    send(target, Method::GET, &path, None).await
}

pub(crate) async fn route(
    target: &Target,
    prompt: &str,
    model: &str,
    account: Option<&str>,
) -> Result<(), String> {
    let message = json!({ "role": "user", "content": prompt });
    let body = json!({ "model": model, "messages": [message] });
    let path = match account {
        Some(account) => format!("/operator/routing/explain?account={}", segment(account)),
        None => "/operator/routing/explain".to_owned(),
    };
    let mut decision = target.call(Method::POST, &path, Some(&body)).await?;
    if target.json {
        println!("{decision}");
        return Ok(());
    }
    // As separate tables: the targets with the reasons against them, and the contributions to the scores.
    let tables = ["candidates", "contributions"].map(|name| {
        let rows = decision
            .as_object_mut()
            .and_then(|all| all.shift_remove(name));
        table::render(&json!({ "data": rows }))
    });
    println!("{}\n\n{}", table::render(&decision), tables.join("\n\n"));
    Ok(())
}

impl Target {
    pub(crate) fn wants_json(&self) -> bool {
        self.json
    }

    /// Sends one request to the operator API.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let token = std::env::var("TOLLGATE_OPERATOR_TOKEN").map_err(|_| {
            "TOLLGATE_OPERATOR_TOKEN is not set. With `tollgate dev`: set -a; . data/dev.env; set +a"
        })?;
        call(&self.operator_url, &token, method, path, body).await
    }
}

/// Sends one request and prints the response.
pub(super) async fn send(
    target: &Target,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<(), String> {
    let response = target.call(method, path, body.as_ref()).await?;
    print(target, &response);
    Ok(())
}

fn print(target: &Target, response: &Value) {
    if target.json {
        println!("{response}");
    } else {
        println!("{}", table::render(response));
    }
}

/// Escapes an ID, which may be any text, as one segment of a path.
pub(super) fn segment(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    id.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
