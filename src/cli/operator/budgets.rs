//! `tollgate budget`.

use axum::http::Method;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{Target, segment};

#[derive(Subcommand)]
pub(crate) enum BudgetCommand {
    /// Set a budget, from the next request on; it replaces the one of the same place and period
    Set(Box<SetBudget>),
    /// List an account's budgets with what is spent and held of each
    List {
        /// The account's ID or email
        account: String,
    },
    /// Remove a budget, from the next request on
    Remove {
        /// The budget's ID, from the list
        budget: String,
    },
}

#[derive(Args)]
pub(crate) struct SetBudget {
    /// The account's ID or email
    account: String,
    /// US dollars, for example 20.00
    #[arg(allow_hyphen_values = true)]
    amount: String,
    /// How long the amount is for
    #[arg(long, value_enum)]
    period: Period,
    /// The project that may spend it; `default` is the default project
    #[arg(long, group = "place")]
    project: Option<String>,
    /// The member whose keys may spend it
    #[arg(long, group = "place")]
    member: Option<String>,
    /// The key that may spend it [default: the whole account]
    #[arg(long, group = "place")]
    key: Option<String>,
    /// What people call it [default: the name of the place]
    #[arg(long)]
    name: Option<String>,
    /// In which time zone days, weeks and months begin, for example Europe/Berlin [default: UTC]
    #[arg(long)]
    timezone: Option<String>,
    /// The first day of the week (1 Monday to 7 Sunday) or of the month (1 to 28) [default: 1]
    #[arg(long)]
    anchor: Option<i64>,
    /// Refuse nothing, and only tell people
    #[arg(long)]
    soft: bool,
    /// A percentage at which people are told; can be given several times [default: 50, 80 and 100]
    #[arg(long = "threshold", value_name = "PERCENT")]
    thresholds: Vec<u8>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Period {
    Day,
    Week,
    Month,
    Total,
}

impl SetBudget {
    fn body(self) -> Value {
        let place = [
            ("project", self.project),
            ("member", self.member),
            ("key", self.key),
        ];
        let place = place.into_iter().find_map(|(scope, id)| Some((scope, id?)));
        let (scope, id) = place.map_or(("account", None), |(scope, id)| (scope, Some(id)));
        let period = match self.period {
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
            Period::Total => "total",
        };
        let thresholds = (!self.thresholds.is_empty()).then_some(self.thresholds);
        json!({
            "account": self.account, "scope": scope, "id": id, "name": self.name,
            "amount": self.amount, "period": period, "timezone": self.timezone,
            "anchor": self.anchor, "hard": !self.soft, "thresholds": thresholds,
        })
    }
}

impl BudgetCommand {
    pub(crate) async fn run(self, target: &Target) -> Result<(), String> {
        let (method, path, body) = match self {
            Self::Set(mut set) => {
                set.account = target.account_id(&set.account).await?;
                (Method::PUT, "/operator/budgets".into(), Some(set.body()))
            }
            Self::List { account } => {
                let path = target.account_path(&account).await? + "/budgets";
                (Method::GET, path, None)
            }
            Self::Remove { budget } => {
                let path = format!("/operator/budgets/{}", segment(&budget));
                (Method::DELETE, path, None)
            }
        };
        target.send(method, &path, body).await
    }
}
