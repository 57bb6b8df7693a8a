//! Chat completions: request bodies, responses and stream frames (§2.1–2.6).

mod answer;
mod frames;
mod message;
mod request;
mod sampling;
mod tool;

pub use answer::{Answer, Bill, Choice, FinishReason, ToolCall, Usage};
pub use frames::{Frames, ShowUsage};
pub use message::{Content, Message, Role};
pub use request::{ChatRequest, StreamOptions, ToolExecution};
pub use sampling::{Sampling, Settings};
pub use tool::{AllowedTools, NamedSchema, ResponseFormat, Schema, Tool, ToolChoice, ToolFunction};
