//! From what a caller wrote to what a model gets: SPEC §2.1–2.4 and §8.3.
//!
//! Pure: no clock, no network, no store. A request that passes here is one that every provider
//! of its model takes.

use std::sync::Arc;

mod budget;
mod conversation;
mod tools;

pub use budget::Budget;
pub use conversation::{Disorder, check_order};
pub use tools::Offered;

use crate::{
    catalog::{Model, Parameter},
    error::GatewayError,
    tools::Toolbox,
    wire::{
        chat::{
            ChatRequest, Message, ResponseFormat, Role, Schema, Settings, ToolChoice, ToolExecution,
        },
        json_text::JsonText,
    },
};

/// Which model was asked for and which one answers.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its ID is what the answer shows, its rules are those the caller reads.
    pub requested: Arc<Model>,
    /// The same model, but for hybrids.
    pub target: Arc<Model>,
}

impl Route {
    /// The most tools that both take.
    fn max_tools(&self) -> usize {
        self.requested.max_tools.min(self.target.max_tools)
    }

    /// Whether the gateway's own tools are offered (SPEC §4.1).
    fn takes_built_in_tools(&self) -> bool {
        self.requested.builtin_tools && self.requested.has_feature("tools")
    }

    /// Whether a parameter is dropped on this way.
    pub fn drops(&self, parameter: Parameter) -> bool {
        self.requested.drops(parameter) || self.target.drops(parameter)
    }
}

/// A chat completion as providers are asked for it, whatever their own format.
#[derive(Debug)]
pub struct ChatCall {
    pub route: Route,
    /// The system message, if any, is the first and only one; every content is one string.
    pub messages: Vec<Message>,
    pub settings: Settings,
    pub budget: Budget,
    /// How many completions, where the caller said so.
    pub n: Option<u32>,
    pub tools: Offered,
    pub tool_choice: Option<ToolChoice>,
    pub parallel_tool_calls: Option<bool>,
    pub response_format: Option<ResponseFormat>,
    pub reasoning_effort: Option<&'static str>,
    pub thinking: Option<Schema>,
    /// The account, in place of whatever the caller wrote.
    pub user: String,
    pub stream: bool,
    pub include_usage: bool,
}

/// What the gateway adds to a request of its own accord.
#[derive(Clone, Copy, Default)]
pub struct Ours<'a> {
    /// Where the model has one.
    pub identity_prompt: Option<&'a str>,
    /// Where there are tools to offer.
    pub toolbox: Option<&'a Arc<Toolbox>>,
}

/// Checks the values of a request of the right shape and puts it in the gateway's form. Whether its
/// calls and their answers belong together ([`check_order`]) was asked before, in the words of its
/// endpoint.
pub fn prepare(
    request: ChatRequest,
    settings: Settings,
    route: Route,
    ours: Ours<'_>,
    user: &str,
) -> Result<ChatCall, GatewayError> {
    if let Some(field) = request.refused.first() {
        return Err(refusal(field));
    }
    settings.check_ranges()?;
    let budget = budget::output_budget(&request, &route)?;
    let n = completions(request.n)?;
    let reasoning_effort = reasoning_effort(request.reasoning_effort.as_deref())?;
    let may_offer = request.tool_execution == ToolExecution::Execute
        && request.tool_choice != Some(ToolChoice::None);
    let (tools, tool_choice) =
        tools::offered(request.tools, request.tool_choice, route.max_tools())?;
    let tools = match ours.toolbox {
        Some(toolbox) if tools.is_empty() && may_offer && route.takes_built_in_tools() => {
            Offered::BuiltIn(toolbox.clone())
        }
        _ => Offered::Callers(tools),
    };
    Ok(ChatCall {
        messages: conversation::with_one_system_prompt(request.messages, ours.identity_prompt),
        route,
        settings,
        budget,
        n,
        parallel_tool_calls: request.parallel_tool_calls.filter(|_| !tools.is_empty()),
        tools,
        tool_choice,
        response_format: request
            .response_format
            .filter(|format| !matches!(format, ResponseFormat::Text)),
        reasoning_effort,
        thinking: request.thinking,
        user: user.to_owned(),
        stream: request.stream,
        include_usage: request.stream_options.include_usage(),
    })
}

impl ChatCall {
    /// How many completions the answer has.
    pub fn choices(&self) -> u32 {
        self.n.unwrap_or(1)
    }

    /// The last thing the user said.
    pub fn last_user_text(&self) -> Option<&JsonText> {
        let mut users = self
            .messages
            .iter()
            .rev()
            .filter(|message| message.role == Role::User);
        users.next().and_then(|message| message.content.as_ref())
    }
}

fn refusal(field: &str) -> GatewayError {
    let message = match field {
        "web_search_options" => {
            "`web_search_options` is not available: searches are not metered yet. Leave it out."
        }
        "functions" | "function_call" => {
            "`functions` and `function_call` are not served; use `tools` and `tool_choice`."
        }
        _ => "This service is text only; leave `audio` out.",
    };
    GatewayError::invalid(field, message)
}

/// Every completion is billed, so a slip of the pen must not ask for a million of them.
fn completions(n: Option<u64>) -> Result<Option<u32>, GatewayError> {
    match n {
        None => Ok(None),
        Some(n @ 1..=128) => Ok(u32::try_from(n).ok()),
        Some(n) => Err(GatewayError::invalid(
            "n",
            format!("`n` is {n}; it must be from 1 to 128."),
        )),
    }
}

/// The nearest of the three levels that every reasoning model knows.
fn reasoning_effort(effort: Option<&str>) -> Result<Option<&'static str>, GatewayError> {
    Ok(match effort {
        None | Some("none") => None,
        Some("minimal" | "low") => Some("low"),
        Some("medium") => Some("medium"),
        Some("high" | "xhigh" | "max") => Some("high"),
        Some(other) => {
            let message =
                format!("`reasoning_effort` is `{other}`; it must be `low`, `medium` or `high`.");
            return Err(GatewayError::invalid("reasoning_effort", message));
        }
    })
}
