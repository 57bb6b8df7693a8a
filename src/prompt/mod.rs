//! From what a caller wrote to what a model gets: SPEC §2.1–2.4 and §8.3.
//!
//! Pure: no clock, no network, no store. A request that passes here is one that every provider
//! of its model takes.

use std::sync::Arc;

mod budget;
mod conversation;
mod route;
mod tools;

pub use budget::{AskedBudget, Budget};
pub use conversation::{Disorder, check_order};
pub use route::Route;
pub use tools::Offered;

use crate::{
    base::tokens::TokenCount,
    catalog::Model,
    routing::{Cap, Chosen, Reason},
    tools::Toolbox,
    wire::{
        chat::{
            ChatRequest, Message, ResponseFormat, Role, Schema, Settings, ToolChoice, ToolExecution,
        },
        error::GatewayError,
        json_text::JsonText,
    },
};

/// A chat completion as providers are asked for it, whatever their own format.
#[derive(Debug)]
pub struct ChatCall {
    pub route: Route,
    /// The system message, if any, is the first and only one; every content is one string.
    pub messages: Vec<Message>,
    pub settings: Settings,
    /// As they were sent, for hybrids: what one target drops, another may take.
    asked_settings: Option<Settings>,
    pub budget: Budget,
    asked_budget: AskedBudget,
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
    /// Tells conversations apart that begin alike.
    pub prompt_cache_key: Option<JsonText>,
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
    request: Box<ChatRequest>,
    settings: Settings,
    route: Route,
    ours: Ours<'_>,
    user: &str,
) -> Result<Box<ChatCall>, GatewayError> {
    if let Some(field) = request.refused.first() {
        return Err(refusal(field));
    }
    settings.check_ranges()?;
    let asked_budget = AskedBudget::read(&request, &route.requested)?;
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
    Ok(Box::new(ChatCall {
        messages: conversation::with_one_system_prompt(request.messages, ours.identity_prompt),
        asked_settings: route.requested.is_hybrid().then(|| settings.clone()),
        settings,
        budget: asked_budget.of(&route.target),
        asked_budget,
        route,
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
        prompt_cache_key: request.prompt_cache_key,
        stream: request.stream,
        include_usage: request.stream_options.include_usage(),
    }))
}

impl ChatCall {
    /// How many completions the answer has.
    pub fn choices(&self) -> u32 {
        self.n.unwrap_or(1)
    }

    /// A hybrid has chosen who answers.
    ///
    /// The gateway's own tools are offered to a target that takes tools, and are no reason to choose
    /// another one; once they are offered, nobody is asked instead who would not know them.
    pub fn choose(&mut self, mut chosen: Chosen) {
        if self.tools.are_built_in() {
            if chosen.target.has_feature("tools") {
                chosen.ladder.retain(|model| model.has_feature("tools"));
            } else {
                self.tools = Offered::Callers(Vec::new());
                self.parallel_tool_calls = None;
            }
        }
        self.goes_to(chosen.target.clone());
        self.route.choose(chosen);
    }

    /// The target has failed: goes to the next one that may answer, if there is one.
    pub fn escalate(&mut self, reason: Reason) -> bool {
        let next = self.route.escalate(reason);
        next.map(|next| self.goes_to(next)).is_some()
    }

    /// The others have failed too: what `target` has said is the answer after all.
    pub fn returns(&mut self, target: Arc<Model>) {
        self.route.returns(&target);
        self.goes_to(target);
    }

    /// Another model answers: what depends on that is worked out anew.
    fn goes_to(&mut self, target: Arc<Model>) {
        self.budget = self.asked_budget.of(&target);
        if let Some(asked) = &self.asked_settings {
            self.settings = asked.without(|parameter| target.drops(parameter));
        }
        self.route.target = target;
    }

    /// The budget it would have with another model.
    pub fn budget_with(&self, target: &Model) -> Budget {
        self.asked_budget.of(target)
    }

    /// The budget it would have with another model, had the caller named so many tokens.
    pub fn budget_naming(&self, tokens: u32, target: &Model) -> Budget {
        self.asked_budget.naming(tokens).of(target)
    }

    /// What the caller called its budget.
    pub fn budget_name(&self) -> &'static str {
        self.asked_budget.name
    }

    /// The cap it would have with another model, as hybrids weigh it.
    pub fn cap_with(&self, target: &Model) -> Cap {
        Cap {
            max_tokens: self.budget_with(target).max_tokens,
            is_raised: self.asked_budget.is_too_small_for(target),
        }
    }

    /// Counts everything that a provider is sent for this call, whatever its format.
    ///
    /// All structs on the way are taken apart without `..`: a field that is added does not compile until it is said
    /// here whether it counts.
    pub fn count(&self) -> TokenCount {
        let Self {
            route: _,
            messages,
            settings,
            asked_settings: _, // `settings` are those that are sent
            budget: _,
            asked_budget: _,
            n: _,
            tools,
            tool_choice,
            parallel_tool_calls: _,
            response_format,
            reasoning_effort,
            thinking,
            user,
            prompt_cache_key: _, // no provider sees it
            stream: _,
            include_usage: _,
        } = self;
        let mut count = TokenCount::request(user);
        for message in messages {
            message.count(&mut count);
        }
        settings.count(&mut count);
        tools.count(&mut count);
        if let Some(choice) = tool_choice {
            choice.count(&mut count);
        }
        if let Some(format) = response_format {
            format.count(&mut count);
        }
        if let Some(thinking) = thinking {
            thinking.count(&mut count);
        }
        // Words of ours, which providers do not bill.
        count.sent(reasoning_effort.unwrap_or_default());
        count.sent(user);
        count
    }

    /// The first message of a role.
    pub fn first_text(&self, role: Role) -> Option<&JsonText> {
        let mut messages = self.messages.iter();
        let first = messages.find(|message| message.role == role);
        first.and_then(|message| message.content.as_ref())
    }

    /// The last thing the user said.
    pub fn last_user_text(&self) -> Option<&JsonText> {
        self.user_texts().next()
    }

    /// What the user said, the last of it first.
    pub fn user_texts(&self) -> impl Iterator<Item = &JsonText> {
        let users = self.messages.iter().rev();
        let users = users.filter(|message| message.role == Role::User);
        users.filter_map(|message| message.content.as_ref())
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
        "modalities" => "This service is text only; leave `modalities` out, or send [\"text\"].",
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
