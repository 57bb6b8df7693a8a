//! `/v1/responses` on the wire: the same call as a chat completion in other words (SPEC §4.2).

mod echo;
mod events;
mod input;
mod object;
mod output;
mod request;
#[cfg(test)]
mod tests;
mod tools;

pub use echo::Echo;
pub use events::{Events, error_event};
pub use input::{Input, Item, conversation};
pub use object::{NewResponse, deleted};
pub use output::response_of_item;
pub use request::ResponsesRequest;
