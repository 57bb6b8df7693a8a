//! Chat completions: request bodies, responses and stream frames (§2.1–2.6).

mod answer;
mod frames;
mod message;
mod request;
mod sampling;
mod tool;

pub use answer::Usage;
pub(crate) use answer::{Answer, Bill, Choice, FinishReason, ToolCall};
pub(crate) use frames::{Frames, ShowUsage};
pub(crate) use message::{Content, Message, Role};
pub(crate) use request::{ChatRequest, ToolExecution};
pub(crate) use sampling::{MAX_STOPS, Sampling, Settings};
pub(crate) use tool::{AllowedTools, NamedSchema, ResponseFormat, Schema, Tool, ToolChoice};
