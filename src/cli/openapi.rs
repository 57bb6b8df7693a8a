//! `tollgate openapi`: the description of an API for programs, without a gateway.

use clap::Args;

use super::output;
use crate::api::openapi::Api;

#[derive(Args, Clone, Copy)]
pub(crate) struct Options {
    /// Describe the operator API instead of the public API
    #[arg(long)]
    operator: bool,
}

pub(crate) fn run(options: Options) -> Result<(), String> {
    let api = if options.operator {
        Api::Operator
    } else {
        Api::Public
    };
    output::print(&format!("{:#}", api.document()))
}
