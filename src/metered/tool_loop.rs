//! Built-in tools (§4.1), run between the steps of a call.
//!
//! A model that calls tools is asked again with their results, until it answers or has used up its steps; in the last step
//! it may call none. Each further step is admitted like the first one. The usage of all steps is one charge, and the
//! caller sees the last answer only.

use std::time::{Duration, Instant};

use super::{Admitted, failure::Failure};
use crate::{
    gateway::Gateway,
    ledger::Step,
    prompt::{ChatCall, OfferedTools},
    tools::ToolOutcome,
    wire::{
        chat::{Answer, Choice, FinishReason, Message, ToolCall, ToolChoice, Usage},
        json_text::JsonText,
    },
};

/// How many tool calls of one answer are run; the rest is ignored, because a model that makes more has gone wrong.
const MAX_CALLS: usize = 16;
/// How long all tools of one call may take together.
const TOOL_TIME: Duration = Duration::from_mins(1);
/// The answer in place of a model that calls tools in its last step.
const NO_ANSWER: &str =
    "The model kept calling tools and gave no answer within the steps it has for one request.";

/// The steps of one call.
#[derive(Default)]
pub(crate) struct Steps {
    begun: u32,
    /// Usage of all steps so far.
    used: Usage,
    /// Usage of the latest step.
    latest: Usage,
    tool_time: Duration,
    begun_at: Option<Instant>,
}

impl Steps {
    /// Starts a step. The first one is admitted already; each further one is admitted here, or the call ends.
    pub(crate) async fn begin(
        &mut self,
        call: &mut ChatCall,
        admitted: &mut Admitted,
    ) -> Result<(), Failure> {
        let OfferedTools::BuiltIn(toolbox) = &call.tools else {
            return Ok(());
        };
        if self.begun + 1 >= toolbox.max_steps || self.tool_time >= TOOL_TIME {
            call.tool_choice = Some(ToolChoice::None);
        }
        if self.begun > 0 {
            // The steps before were priced for this model, so the call stays with it.
            call.route.fix_target();
            admitted
                .renew(call, self.used, self.latest)
                .await
                .map_err(Failure::Refused)?;
        }
        self.begun += 1;
        self.begun_at = Some(Instant::now());
        Ok(())
    }

    /// Runs the tools that an answer calls; returns whether the provider is asked again or the answer is delivered.
    /// After the client has left, no further step starts.
    pub(crate) async fn after(
        &mut self,
        answer: &mut Answer,
        client_left: bool,
        gateway: &Gateway,
        call: &mut ChatCall,
        admitted: &mut Admitted,
    ) -> Result<Next, Failure> {
        let wants_tools = answer.choices.first().is_some_and(|choice| {
            choice.finish == FinishReason::ToolCalls && !choice.tool_calls.is_empty()
        });
        let asks_again = wants_tools && call.tool_choice != Some(ToolChoice::None);
        if asks_again || self.begun > 1 {
            admitted.add_provider_step(answer, self.begun_at.take());
        }
        match answer.usage {
            Some(usage) => {
                self.latest = usage;
                self.used = self.used.plus(usage);
            }
            None if asks_again => return Err(Failure::Uncounted),
            None => {}
        }
        answer.usage = answer.usage.map(|_| self.used);
        if !asks_again {
            hide_calls(answer);
            return Ok(Next::Deliver);
        }
        if client_left {
            return Err(Failure::Left(self.used));
        }
        let choice = answer.choices.swap_remove(0);
        self.run(choice.content, choice.tool_calls, gateway, call, admitted)
            .await;
        Ok(Next::AskAgain)
    }

    /// Runs tool calls in order, one at a time. Failures are results for the model.
    async fn run(
        &mut self,
        said: Option<JsonText>,
        mut calls: Vec<ToolCall>,
        gateway: &Gateway,
        call: &mut ChatCall,
        admitted: &mut Admitted,
    ) {
        let OfferedTools::BuiltIn(toolbox) = &call.tools else {
            return;
        };
        let toolbox = toolbox.clone();
        let started = Instant::now();
        calls.truncate(MAX_CALLS);
        call.messages.push(Message::tool_calls(said, calls.clone()));
        for tool_call in calls {
            let name = &tool_call.function.name;
            let arguments = tool_call.function.arguments.decode();
            let began = Instant::now();
            let mut span = admitted.spans.tool(toolbox.label(name), &tool_call);
            let ran = if self.tool_time + started.elapsed() < TOOL_TIME {
                toolbox.run(name, &arguments).await
            } else {
                crate::tools::ToolResult {
                    text: "Not run: the tools of this request have used up their time.".into(),
                    outcome: ToolOutcome::TimedOut,
                }
            };
            let name = toolbox.label(name);
            let outcome = ran.outcome.as_str();
            if let Some(span) = span.as_mut().filter(|_| ran.outcome != ToolOutcome::Done) {
                // Without the result, which quotes the arguments.
                span.fail(outcome, "");
            }
            drop(span);
            gateway.metrics.ran_tool(name, outcome);
            admitted.add_step(Step::Tool {
                name: name.to_owned(),
                arguments_bytes: arguments.len(),
                outcome: outcome.to_owned(),
                result_bytes: ran.text.len(),
                ms: milliseconds(began),
            });
            let said = JsonText::new(&ran.text);
            call.messages.push(Message::tool(tool_call.id, said));
        }
        self.tool_time += started.elapsed();
    }
}

/// What follows after an answer.
pub(crate) enum Next {
    Deliver,
    AskAgain,
}

/// Removes calls of built-in tools from the final answer. Tools are run for the first choice only: if it has no text, it
/// ends with an explanation and finish reason `length`; the other choices end with their text.
fn hide_calls(answer: &mut Answer) {
    for choice in &mut answer.choices {
        choice.tool_calls.clear();
        if choice.finish != FinishReason::ToolCalls {
            continue;
        }
        let silent = choice.index == 0 && is_silent(choice);
        choice.finish = if silent {
            FinishReason::Length
        } else {
            FinishReason::Stop
        };
        if silent {
            choice.content = Some(JsonText::new(NO_ANSWER));
        } else if choice.content.is_none() {
            choice.content = Some(JsonText::new(""));
        }
    }
}

pub(crate) fn is_silent(choice: &Choice) -> bool {
    choice.content.as_ref().is_none_or(JsonText::is_empty)
}

pub(crate) fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
