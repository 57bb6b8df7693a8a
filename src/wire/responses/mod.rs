//! The API `/v1/responses` (§4.2): a request becomes a chat request, and the result is written in this API's format.

mod echo;
mod events;
mod input;
mod object;
mod output;
mod request;
#[cfg(test)]
mod tests;
mod tools;

pub(crate) use events::{Events, error_event};
pub(crate) use input::{Input, Item, conversation};
pub(crate) use object::{NewResponse, deleted};
pub(crate) use output::response_of_item;
pub(crate) use request::ResponsesRequest;
