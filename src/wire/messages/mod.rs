//! Anthropic's Messages API (§4.9): a request becomes a chat request, and the result is written in this API's form.
//!
//! Nothing is changed in silence: a field or a block that cannot be mapped is refused with its path, such as
//! `messages.3.content.1.image`.

mod answer;
mod blocks;
mod conversation;
mod documents;
mod events;
mod fields;
mod ids;
mod input;
mod models;
mod native;
mod open_calls;
mod request;
mod settings;
mod splice;
#[cfg(test)]
mod tests;
mod tools;
mod usage;

pub(crate) use answer::NewMessage;
pub(crate) use events::{Events, PING, error_event};
pub(crate) use ids::ToolIds;
pub(crate) use input::object as input_object;
pub(crate) use models::{ModelInfo, page};
pub(crate) use native::{Naming, NativeEvent, NativeHeaders, NativeMessage, NativeRequest};
pub(crate) use request::{MessagesRequest, Purpose};
