//! The operators' console: accounts, requests, models and limits of the whole gateway, and its current state.
//! Every change is recorded as an operator action (`gateway/actions`).
//!
//! For customers its pages do not exist: they get 404.

use std::sync::Arc;

use axum::{
    Router,
    routing::{any, get, post},
};

mod access;
mod account;
mod account_filter;
mod account_forms;
mod account_names;
mod account_people;
mod accounts;
mod actions;
mod alerts;
mod audit;
mod bars;
mod changes;
mod configuration;
mod deployments;
mod frame;
mod keys;
mod limits;
mod live;
mod live_breakdown;
mod live_tail;
mod margin;
mod models;
mod people;
mod refused;
mod request_details;
mod requests;
mod sign_in;

use super::{layout, paging};
use crate::gateway::Gateway;

/// The routes of all console pages.
pub(crate) fn router() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/portal/console", get(live::show))
        .route(
            "/portal/console/",
            any(|| async { layout::redirect("/portal/console") }),
        )
        .route("/portal/console/live", get(live::figures_fragment))
        .route("/portal/console/live/requests", get(live::tail_fragment))
        .route(
            "/portal/console/sign-in",
            get(sign_in::show).post(sign_in::sign_in),
        )
        .route("/portal/console/sign-out", post(sign_in::sign_out))
        .route(
            "/portal/console/accounts",
            get(accounts::list).post(account_forms::create),
        )
        .route("/portal/console/accounts/{id}", get(account::show))
        .route(
            "/portal/console/accounts/{id}/plan",
            post(account_forms::change_plan),
        )
        .route(
            "/portal/console/accounts/{id}/state",
            post(account_forms::change_state),
        )
        .route(
            "/portal/console/accounts/{id}/grants",
            post(account_forms::grant),
        )
        .route(
            "/portal/console/accounts/{id}/keys",
            get(keys::list).post(keys::create),
        )
        .route("/portal/console/keys/{id}/state", post(keys::set_state))
        .route(
            "/portal/console/keys/{id}/delete",
            get(keys::confirm_delete),
        )
        .route(
            "/portal/console/accounts/{id}/invitations",
            post(account_people::invite),
        )
        .route(
            "/portal/console/accounts/{id}/invitations/withdraw",
            get(account_people::confirm_withdraw).post(account_people::withdraw),
        )
        .route("/portal/console/people", get(people::list))
        .route(
            "/portal/console/people/{id}/role",
            post(account_people::set_role),
        )
        .route(
            "/portal/console/people/{id}/reset",
            post(account_people::reset),
        )
        .route(
            "/portal/console/people/{id}/second-factor",
            get(account_people::confirm_factor_reset).post(account_people::reset_factor),
        )
        .route(
            "/portal/console/people/{id}/remove",
            get(account_people::confirm_remove).post(account_people::remove),
        )
        .route("/portal/console/requests", get(requests::list))
        .route("/portal/console/requests/refused", get(refused::list))
        .route("/portal/console/requests.csv", get(requests::csv))
        .route("/portal/console/requests/{id}", get(request_details::show))
        .route(
            "/portal/console/models",
            get(models::list).post(models::change),
        )
        .route(
            "/portal/console/models/disable",
            get(models::confirm_disable),
        )
        .route(
            "/portal/console/limits",
            get(limits::list).post(limits::change),
        )
        .merge(configuration_pages())
        .route("/portal/console/deployments", get(deployments::show))
        .route("/portal/console/margin", get(margin::show))
        .route("/portal/console/audit", get(audit::show).post(audit::run))
        .route("/portal/console/actions", get(actions::list))
        .route("/portal/console/alerts", get(alerts::list))
        .route("/portal/console/alerts/test", post(alerts::test))
}

fn configuration_pages() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/portal/console/config", get(configuration::list))
        .route(
            "/portal/console/config/history",
            get(configuration::versions),
        )
        .route(
            "/portal/console/config/history/{number}",
            get(configuration::version),
        )
        .route(
            "/portal/console/config/rollback",
            post(configuration::roll_back),
        )
        .route("/portal/console/config/{kind}", post(configuration::submit))
        .route(
            "/portal/console/config/{kind}/edit",
            get(configuration::edit),
        )
        .route(
            "/portal/console/config/{kind}/new",
            get(configuration::create),
        )
}
