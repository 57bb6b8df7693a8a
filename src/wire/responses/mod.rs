//! The API `/v1/responses` (§4.2): a request becomes a chat request, and the result is written in this API's format.

mod content;
mod conversation;
mod custom_input;
mod echo;
mod events;
mod input;
mod object;
mod output;
mod request;
#[cfg(test)]
mod tests;
mod text_format;
mod tool_choice;
mod tool_echo;
mod tool_names;
mod tools;

pub(crate) use conversation::conversation;
pub(crate) use events::{Events, failure_events, last_event};
pub(crate) use input::{Input, Item};
pub(crate) use object::{NewResponse, deleted};
pub(crate) use output::response_of_item;
pub(crate) use request::ResponsesRequest;
pub(crate) use tool_names::ToolNames;
