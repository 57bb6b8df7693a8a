//! Fields that steer the answer: thinking, effort, format, sampling.

use serde::Deserialize;
use serde_json::Value;

use super::blocks::wrong;
use crate::wire::{
    chat::{NamedSchema, ResponseFormat, Sampling, Schema},
    error::GatewayError,
    integer::Whole,
};

/// The smallest thinking budget of this API.
const MIN_THINKING: u64 = 1_024;
/// Thinking budgets from which the effort is medium and high.
const MEDIUM_THINKING: u64 = 4_096;
const HIGH_THINKING: u64 = 16_384;

/// The name that a chat needs for a schema.
const SCHEMA_NAME: &str = "output";

#[derive(Debug, Deserialize)]
pub(super) struct RawThinking {
    #[serde(rename = "type")]
    kind: String,
    budget_tokens: Option<Whole>,
    display: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct RawOutput {
    effort: Option<String>,
    format: Option<RawFormat>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RawFormat {
    #[serde(rename = "type")]
    kind: String,
    schema: Option<Schema>,
}

/// Effort and format, as a chat has them.
pub(super) struct Output {
    pub effort: Option<String>,
    pub format: Option<ResponseFormat>,
}

/// Reads `thinking`, `output_config` and the older `output_format`.
pub(super) fn output(
    thinking: Option<RawThinking>,
    output: Option<RawOutput>,
    old_format: Option<RawFormat>,
    max_tokens: Option<u64>,
) -> Result<Output, GatewayError> {
    let RawOutput { effort, format } = output.unwrap_or_default();
    let effort = effort.map(|effort| read_effort(&effort)).transpose()?;
    let from_thinking = match thinking {
        Some(thinking) => thinking.effort(max_tokens)?,
        None => None,
    };
    let format = match (format, old_format) {
        (Some(format), _) => Some(format.read("output_config.format")?),
        (None, Some(format)) => Some(format.read("output_format")?),
        (None, None) => None,
    };
    Ok(Output {
        effort: effort.or(from_thinking).map(str::to_owned),
        format,
    })
}

fn read_effort(effort: &str) -> Result<&'static str, GatewayError> {
    Ok(match effort {
        "low" => "low",
        "medium" => "medium",
        "high" => "high",
        "xhigh" => "xhigh",
        "max" => "max",
        other => {
            let reason =
                format!("it is `{other}`; it must be `low`, `medium`, `high`, `xhigh` or `max`.");
            return Err(wrong("output_config.effort", reason));
        }
    })
}

impl RawThinking {
    /// Checks the field, and returns the effort that it stands for.
    fn effort(self, max_tokens: Option<u64>) -> Result<Option<&'static str>, GatewayError> {
        if let Some(display) = self.display
            && !matches!(display.as_str(), "omitted" | "summarized" | "updates")
        {
            let reason =
                format!("it is `{display}`; it must be `omitted`, `summarized` or `updates`.");
            return Err(wrong("thinking.display", reason));
        }
        let budget = self.budget_tokens.map(|Whole(budget)| budget);
        if let Some(budget) = budget {
            check_budget(budget, max_tokens)?;
        }
        match self.kind.as_str() {
            "disabled" => Ok(Some("minimal")),
            "adaptive" | "between_tools" => Ok(None),
            "enabled" => match budget {
                None => Err(wrong("thinking.budget_tokens", "it is missing.")),
                Some(..MEDIUM_THINKING) => Ok(Some("low")),
                Some(..HIGH_THINKING) => Ok(Some("medium")),
                Some(_) => Ok(Some("high")),
            },
            other => {
                let reason = format!(
                    "it is `{other}`; it must be `adaptive`, `enabled`, `disabled` or `between_tools`."
                );
                Err(wrong("thinking.type", reason))
            }
        }
    }
}

fn check_budget(budget: u64, max_tokens: Option<u64>) -> Result<(), GatewayError> {
    let path = "thinking.budget_tokens";
    if budget < MIN_THINKING {
        let reason = format!("it is {budget}; it must be at least {MIN_THINKING}.");
        return Err(wrong(path, reason));
    }
    match max_tokens {
        Some(most) if budget >= most => {
            let reason = format!("it is {budget}; it must be less than `max_tokens`, {most}.");
            Err(wrong(path, reason))
        }
        _ => Ok(()),
    }
}

impl RawFormat {
    fn read(self, path: &str) -> Result<ResponseFormat, GatewayError> {
        if self.kind != "json_schema" {
            let reason = format!("it is `{}`; it must be `json_schema`.", self.kind);
            return Err(wrong(format!("{path}.type"), reason));
        }
        let schema = self.schema;
        let schema = schema.ok_or_else(|| wrong(format!("{path}.schema"), "it is missing."))?;
        Ok(ResponseFormat::JsonSchema {
            json_schema: NamedSchema {
                name: SCHEMA_NAME.to_owned(),
                description: None,
                strict: Some(true),
                schema: Some(schema),
            },
        })
    }
}

/// Checks the ranges of this API, which are narrower than those of a chat.
pub(super) fn check_ranges(
    temperature: Option<f64>,
    top_p: Option<f64>,
) -> Result<(), GatewayError> {
    for (name, value) in [("temperature", temperature), ("top_p", top_p)] {
        if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
            return Err(wrong(
                name,
                format!("it is {value}; it must be from 0 to 1."),
            ));
        }
    }
    Ok(())
}

/// The sampling fields of a chat.
pub(super) fn sampling(
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<Whole>,
    stop: Vec<String>,
) -> Result<Sampling, GatewayError> {
    if let Some(at) = stop.iter().position(|text| text.trim().is_empty()) {
        let path = format!("stop_sequences.{at}");
        return Err(wrong(path, "a stop sequence needs more than white space."));
    }
    Ok(Sampling {
        temperature: temperature.map(Value::from),
        top_p: top_p.map(Value::from),
        top_k: top_k.map(|Whole(k)| Value::from(k)),
        stop: (!stop.is_empty()).then(|| Value::from(stop)),
        ..Sampling::default()
    })
}
