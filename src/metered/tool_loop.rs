//! The tools that the gateway runs itself (SPEC §4.1), between one question to the provider and the
//! next.
//!
//! A model that calls one is asked again with what the tool said, until it answers or has been asked
//! as often as may be; the last time it is told to call none. Each further question is admitted
//! and paid for like the first one, what all of them used is one charge, and the caller sees the
//! last answer alone.

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

/// How many calls of one answer are heard; more are a model gone wrong.
const MAX_CALLS: usize = 16;
/// How long the tools of one request may take together.
const TOOL_TIME: Duration = Duration::from_mins(1);
/// In place of an answer that a model would not give though it was told to call no more tools.
const NO_ANSWER: &str =
    "The model kept calling tools and gave no answer within the steps it has for one request.";

/// The steps of one request.
#[derive(Default)]
pub struct Steps {
    asked: u32,
    /// By all answers so far.
    used: Usage,
    /// By the latest one.
    latest: Usage,
    tool_time: Duration,
    asked_at: Option<Instant>,
}

impl Steps {
    /// Before the provider is asked. The first time everything is as it was admitted; each time
    /// after that more is reserved, or the request ends here.
    pub async fn begin(
        &mut self,
        call: &mut ChatCall,
        admitted: &mut Admitted<'_>,
    ) -> Result<(), Failure> {
        let OfferedTools::BuiltIn(toolbox) = &call.tools else {
            return Ok(());
        };
        if self.asked + 1 >= toolbox.max_steps || self.tool_time >= TOOL_TIME {
            call.tool_choice = Some(ToolChoice::None);
        }
        if self.asked > 0 {
            // What was used before is priced as this model's: from here on it stays.
            call.route.fix_target();
            admitted
                .renew(call, self.used, self.latest)
                .await
                .map_err(Failure::Refused)?;
        }
        self.asked += 1;
        self.asked_at = Some(Instant::now());
        Ok(())
    }

    /// What is to be done after an answer: run the tools it calls and ask again, or hand it on.
    /// For a client that has left, nothing new is begun.
    pub async fn after(
        &mut self,
        answer: &mut Answer,
        client_left: bool,
        gateway: &Gateway,
        call: &mut ChatCall,
        admitted: &mut Admitted<'_>,
    ) -> Result<Next, Failure> {
        let wants_tools = answer.choices.first().is_some_and(|choice| {
            choice.finish == FinishReason::ToolCalls && !choice.tool_calls.is_empty()
        });
        let asks_again = wants_tools && call.tool_choice != Some(ToolChoice::None);
        if asks_again || self.asked > 1 {
            admitted.answered_step(answer, self.asked_at.take());
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
            return Ok(Next::HandOn);
        }
        if client_left {
            return Err(Failure::Left(self.used));
        }
        let choice = answer.choices.swap_remove(0);
        self.run(choice.content, choice.tool_calls, gateway, call, admitted)
            .await;
        Ok(Next::AskAgain)
    }

    /// In order, one at a time; what fails is told to the model.
    async fn run(
        &mut self,
        said: Option<JsonText>,
        mut calls: Vec<ToolCall>,
        gateway: &Gateway,
        call: &mut ChatCall,
        admitted: &mut Admitted<'_>,
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
            let ran = if self.tool_time + started.elapsed() < TOOL_TIME {
                toolbox.run(name, &arguments).await
            } else {
                crate::tools::Ran {
                    text: "Not run: the tools of this request have used up their time.".into(),
                    outcome: ToolOutcome::TimedOut,
                }
            };
            let name = if toolbox.offers(name) {
                name
            } else {
                "(unknown)" // it is the model's invention, and may be anything
            };
            let outcome = ran.outcome.as_str();
            gateway.metrics.ran_tool(name, outcome);
            admitted.step(Step::Tool {
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

/// What follows an answer.
pub enum Next {
    HandOn,
    AskAgain,
}

/// Calls of the gateway's own tools are nobody's to see. Tools are run for the first choice: if it had nothing else to
/// say, it has been cut off. The others end with what they said.
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

pub fn is_silent(choice: &Choice) -> bool {
    choice.content.as_ref().is_none_or(JsonText::is_empty)
}

pub fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
