//! Turns a caller's chat request into the call that is sent to a model (§2.1–2.4, §8.3). Pure: no clock, no network,
//! no store.
//!
//! An invalid request is refused with the field at fault; a request that passes is valid for every provider of its
//! model.
//!
//! It may use the rooms after it in `src/lib.rs`; it uses `tools`, `wire`, `routing`, `catalog` and `base`, and from
//! `net` the reservation of a body's memory, which a call keeps.

use std::sync::Arc;

mod budget;
mod conversation;
mod route;
mod tools;

pub(crate) use budget::{Budget, RequestedBudget};
pub(crate) use conversation::{ToolOrderError, check_order};
pub(crate) use route::Route;
pub(crate) use tools::OfferedTools;

use crate::{
    base::tokens::TokenCount,
    catalog::Model,
    net::body_memory::BodyReservation,
    routing::{Cap, Chosen, Reason},
    telemetry::Trace,
    tools::Toolbox,
    wire::{
        agent::Agent,
        chat::{
            ChatRequest, Message, ResponseFormat, Role, Schema, Settings, ToolChoice, ToolExecution,
        },
        error::GatewayError,
        json_text::JsonText,
        messages::NativeRequest,
    },
};

/// A chat completion in the gateway's own form, from which every provider adapter builds its request.
#[derive(Debug)]
pub(crate) struct ChatCall {
    pub route: Route,
    /// The first message is the system prompt, if there is one; every content is one string. Only requests of the
    /// Messages API have further system messages.
    pub messages: Vec<Message>,
    pub settings: Settings,
    /// The settings that the caller sent, for hybrids only: one target may drop a setting that another accepts.
    requested_settings: Option<Settings>,
    pub budget: Budget,
    requested_budget: RequestedBudget,
    /// The number of completions, if the caller set it.
    pub n: Option<u32>,
    pub tools: OfferedTools,
    pub tool_choice: Option<ToolChoice>,
    pub parallel_tool_calls: Option<bool>,
    pub response_format: Option<ResponseFormat>,
    pub reasoning_effort: Option<&'static str>,
    pub thinking: Option<Schema>,
    /// The account's ID; it replaces the caller's `user`.
    pub(crate) user: String,
    /// Distinguishes conversations that begin alike, for hybrids.
    pub prompt_cache_key: Option<JsonText>,
    pub stream: bool,
    pub include_usage: bool,
    /// The coding agent that sent the request, for the record of the call. Providers do not see it.
    pub agent: Option<Arc<Agent>>,
    /// The trace that the request belongs to; `None` if traces are sent nowhere.
    pub trace: Option<Arc<Trace>>,
    /// The request as the caller sent it, if a provider of the caller's API may serve it.
    pub native: Option<Arc<NativeRequest>>,
    /// The tokens of a large call, counted in advance: see [`Self::count_in_advance`].
    counted: Option<Counted>,
    /// Reservation of the memory of the body that the call was made of; it counts until the call is dropped.
    pub body_memory: Option<Arc<BodyReservation>>,
}

/// The tokens of a call with its first messages.
#[derive(Clone, Copy, Debug)]
struct Counted {
    count: TokenCount,
    messages: usize,
}

/// What the gateway itself adds to a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct Additions<'a> {
    /// The model's identity prompt, if it has one.
    pub identity_prompt: Option<&'a str>,
    /// The built-in tools, if any are configured.
    pub toolbox: Option<&'a Arc<Toolbox>>,
}

/// Checks the values of a parsed request and converts it to the gateway's own form. The order of tool calls and their
/// outputs ([`check_order`]) has been checked before, because its error message depends on the API.
pub(crate) fn prepare(
    request: Box<ChatRequest>,
    settings: Settings,
    route: Route,
    additions: Additions<'_>,
    user: &str,
) -> Result<Box<ChatCall>, GatewayError> {
    if let Some(field) = request.refused.first() {
        return Err(unsupported_field(field));
    }
    settings.check_ranges()?;
    let requested_budget = RequestedBudget::read(&request, &route)?;
    let n = completions(request.n)?;
    let reasoning_effort = reasoning_effort(request.reasoning_effort.as_deref())?;
    let may_offer = request.tool_execution == ToolExecution::Execute
        && request.tool_choice != Some(ToolChoice::None);
    let (tools, tool_choice) =
        tools::resolve(request.tools, request.tool_choice, route.max_tools())?;
    let tools = match additions.toolbox {
        Some(toolbox) if tools.is_empty() && may_offer && route.takes_built_in_tools() => {
            OfferedTools::BuiltIn(toolbox.clone())
        }
        _ => OfferedTools::Callers(tools),
    };
    let identity = additions.identity_prompt;
    let messages = if request.keeps_system_messages {
        conversation::with_first_system_prompt(request.messages, identity)
    } else {
        conversation::with_one_system_prompt(request.messages, identity)
    };
    Ok(Box::new(ChatCall {
        messages,
        requested_settings: route.requested.is_hybrid().then(|| settings.clone()),
        settings,
        budget: requested_budget.of(&route.target),
        requested_budget,
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
        agent: None,
        trace: None,
        native: None,
        counted: None,
        body_memory: None,
    }))
}

impl ChatCall {
    /// Whether only a provider of the caller's own API can serve the call.
    pub(crate) fn needs_native(&self) -> bool {
        let native = self.native.as_ref();
        native.is_some_and(|native| native.is_required())
    }

    /// How many completions the response has.
    pub(crate) fn choices(&self) -> u32 {
        self.n.unwrap_or(1)
    }

    /// Applies the choice of a hybrid.
    ///
    /// Built-in tools are offered only if the target supports tools; they do not influence the choice. If they are
    /// offered, fallbacks without support for tools are removed.
    pub(crate) fn choose(&mut self, mut chosen: Chosen) {
        if self.tools.are_built_in() {
            if chosen.target.has_feature("tools") {
                chosen.fallbacks.retain(|model| model.has_feature("tools"));
            } else {
                self.tools = OfferedTools::Callers(Vec::new());
                self.parallel_tool_calls = None;
            }
        }
        self.set_target(chosen.target.clone());
        self.route.choose(chosen);
    }

    /// Moves on to the next fallback after the target has failed. Returns `false` if there is none.
    pub(crate) fn escalate(&mut self, reason: Reason) -> bool {
        let next = self.route.escalate(reason);
        next.map(|next| self.set_target(next)).is_some()
    }

    /// Returns to `target` after the fallbacks have failed too: its earlier response is delivered after all.
    pub(crate) fn return_to(&mut self, target: Arc<Model>) {
        self.route.return_to(&target);
        self.set_target(target);
    }

    /// Sets the target, and recomputes the budget and the settings for it.
    fn set_target(&mut self, target: Arc<Model>) {
        self.budget = self.requested_budget.of(&target);
        if let Some(requested) = &self.requested_settings {
            self.settings = requested.without(|parameter| target.drops(parameter));
        }
        self.route.target = target;
    }

    /// The budget of this call with another model.
    pub(crate) fn budget_with(&self, target: &Model) -> Budget {
        self.requested_budget.of(target)
    }

    /// The budget of this call with another model, if the caller had set `max_tokens` to `tokens`.
    pub(crate) fn budget_naming(&self, tokens: u32, target: &Model) -> Budget {
        self.requested_budget.with_named(tokens).of(target)
    }

    /// The field in which the caller set the budget.
    pub(crate) fn budget_name(&self) -> &'static str {
        self.requested_budget.name
    }

    /// The output cap of this call with another model, for the choice of a hybrid.
    pub(crate) fn cap_with(&self, target: &Model) -> Cap {
        Cap {
            max_tokens: self.budget_with(target).max_tokens,
            is_raised: self.requested_budget.is_too_small_for(target),
        }
    }

    /// Counts the tokens of everything that is sent to a provider for this call, whatever the provider's format.
    pub(crate) fn count(&self) -> TokenCount {
        let Some(Counted {
            mut count,
            messages,
        }) = self.counted
        else {
            return self.count_all();
        };
        // Further steps of a call with built-in tools only append messages.
        for message in self.messages.iter().skip(messages) {
            message.count(&mut count);
        }
        count
    }

    /// Counts the tokens now, where it delays no other request, and stores the count. From then on messages may only be
    /// appended.
    pub(crate) fn count_in_advance(&mut self) {
        self.counted = Some(Counted {
            count: self.count_all(),
            messages: self.messages.len(),
        });
    }

    /// Counts the whole call.
    ///
    /// All structs are destructured without `..`, so that a new field does not compile until it is decided here whether
    /// it counts.
    fn count_all(&self) -> TokenCount {
        let Self {
            route: _,
            messages,
            settings,
            requested_settings: _, // only `settings` are sent
            budget: _,
            requested_budget: _,
            n: _,
            tools,
            tool_choice,
            parallel_tool_calls: _,
            response_format,
            reasoning_effort,
            thinking,
            user,
            prompt_cache_key: _, // not sent to providers
            stream: _,
            include_usage: _,
            agent: _, // not sent to providers
            trace: _, // sent in a header
            native,
            counted: _,
            body_memory: _,
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
        // Values that the gateway sets; they are sent, but providers do not bill them.
        count.sent(reasoning_effort.unwrap_or_default());
        count.sent(user);
        if let Some(native) = native {
            native.count(messages.len(), &mut count);
        }
        count
    }

    /// The content of the first message with this role.
    pub(crate) fn first_text(&self, role: Role) -> Option<&JsonText> {
        let mut messages = self.messages.iter();
        let first = messages.find(|message| message.role == role);
        first.and_then(|message| message.content.as_ref())
    }

    /// The content of the last user message.
    pub(crate) fn last_user_text(&self) -> Option<&JsonText> {
        self.user_texts().next()
    }

    /// The contents of the user messages, the last one first.
    pub(crate) fn user_texts(&self) -> impl Iterator<Item = &JsonText> {
        let users = self.messages.iter().rev();
        let users = users.filter(|message| message.role == Role::User);
        users.filter_map(|message| message.content.as_ref())
    }
}

fn unsupported_field(field: &str) -> GatewayError {
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

/// Checks `n`. Every completion is billed, so a typo must not request a million of them.
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

/// Maps the effort to the nearest of the three levels that every reasoning model supports.
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
