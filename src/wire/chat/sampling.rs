//! The sampling parameters: parsed as any JSON first, checked once the model is known.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    base::tokens::TokenCount,
    catalog::Parameter,
    wire::{error::GatewayError, integer},
};

/// The most stop sequences.
pub(crate) const MAX_STOPS: usize = 4;
/// The most entries of `logit_bias`.
const MAX_LOGIT_BIAS: usize = 1_024;

/// The sampling fields as the caller sent them. Values of any shape are parsed, but only so many of them
/// (`wire/shape.rs`).
///
/// The value of a field that the model drops may be anything, so types are checked only when the model is known, by
/// [`Sampling::checked`].
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    pub temperature: Option<Value>,
    pub top_p: Option<Value>,
    pub top_k: Option<Value>,
    pub seed: Option<Value>,
    pub frequency_penalty: Option<Value>,
    pub presence_penalty: Option<Value>,
    pub logit_bias: Option<Value>,
    pub logprobs: Option<Value>,
    pub top_logprobs: Option<Value>,
    pub stop: Option<Value>,
}

/// The sampling fields that are sent upstream.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logit_bias: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

impl Sampling {
    /// Checks the types of the fields and leaves out those for which `dropped` is true.
    pub(crate) fn checked(
        self,
        dropped: impl Fn(Parameter) -> bool,
    ) -> Result<Settings, GatewayError> {
        let reader = Reader { dropped };
        let number = |value: &Value| value.as_f64();
        let integer = integer::read;
        let flag = |value: &Value| value.as_bool();
        Ok(Settings {
            temperature: reader.read(
                Parameter::Temperature,
                self.temperature,
                "a number",
                number,
            )?,
            top_p: reader.read(Parameter::TopP, self.top_p, "a number", number)?,
            top_k: reader.read(Parameter::TopK, self.top_k, "an integer", integer)?,
            seed: reader.read(Parameter::Seed, self.seed, "an integer", integer)?,
            frequency_penalty: reader.read(
                Parameter::FrequencyPenalty,
                self.frequency_penalty,
                "a number",
                number,
            )?,
            presence_penalty: reader.read(
                Parameter::PresencePenalty,
                self.presence_penalty,
                "a number",
                number,
            )?,
            logit_bias: reader.read(
                Parameter::LogitBias,
                self.logit_bias,
                "an object of numbers",
                numbers,
            )?,
            logprobs: reader.read(Parameter::Logprobs, self.logprobs, "true or false", flag)?,
            top_logprobs: reader.read(
                Parameter::TopLogprobs,
                self.top_logprobs,
                "an integer",
                integer,
            )?,
            stop: reader
                .read(
                    Parameter::Stop,
                    self.stop,
                    "a string or an array of strings",
                    stops,
                )?
                .unwrap_or_default(),
        })
    }
}

impl Settings {
    /// A copy without the fields for which `dropped` is true.
    #[must_use]
    pub(crate) fn without(&self, dropped: impl Fn(Parameter) -> bool) -> Self {
        let kept = |parameter| !dropped(parameter);
        let all = self.clone();
        Self {
            temperature: all.temperature.filter(|_| kept(Parameter::Temperature)),
            top_p: all.top_p.filter(|_| kept(Parameter::TopP)),
            top_k: all.top_k.filter(|_| kept(Parameter::TopK)),
            seed: all.seed.filter(|_| kept(Parameter::Seed)),
            frequency_penalty: all
                .frequency_penalty
                .filter(|_| kept(Parameter::FrequencyPenalty)),
            presence_penalty: all
                .presence_penalty
                .filter(|_| kept(Parameter::PresencePenalty)),
            logit_bias: all.logit_bias.filter(|_| kept(Parameter::LogitBias)),
            logprobs: all.logprobs.filter(|_| kept(Parameter::Logprobs)),
            top_logprobs: all.top_logprobs.filter(|_| kept(Parameter::TopLogprobs)),
            stop: if kept(Parameter::Stop) {
                all.stop
            } else {
                Vec::new()
            },
        }
    }

    /// Counts the texts among the fields. Numbers are not part of a prompt.
    pub(crate) fn count(&self, count: &mut TokenCount) {
        let Self {
            temperature: _,
            top_p: _,
            top_k: _,
            seed: _,
            frequency_penalty: _,
            presence_penalty: _,
            logit_bias,
            logprobs: _,
            top_logprobs: _,
            stop,
        } = self;
        for (token, bias) in logit_bias.iter().flatten() {
            count.text(token);
            count.sent(&bias.to_string());
        }
        for text in stop {
            count.text(text);
        }
    }

    /// Checks the ranges of §2.1 and §8.4.
    pub(crate) fn check_ranges(&self) -> Result<(), GatewayError> {
        let within = |name: &str, value: Option<f64>, low: f64, high: f64| match value {
            Some(value) if !(low..=high).contains(&value) => {
                let message = format!("`{name}` is {value}; it must be from {low} to {high}.");
                Err(GatewayError::invalid(name, message))
            }
            _ => Ok(()),
        };
        within("temperature", self.temperature, 0.0, 2.0)?;
        within("top_p", self.top_p, 0.0, 1.0)?;
        within("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?;
        within("presence_penalty", self.presence_penalty, -2.0, 2.0)?;
        let stops = self.stop.len();
        if stops > MAX_STOPS {
            let message =
                format!("`stop` has {stops} sequences; at most {MAX_STOPS} are accepted.");
            return Err(GatewayError::invalid("stop", message));
        }
        let biased = self.logit_bias.as_ref().map_or(0, Map::len);
        if biased > MAX_LOGIT_BIAS {
            let message = format!(
                "`logit_bias` has {biased} entries; at most {MAX_LOGIT_BIAS} are accepted."
            );
            return Err(GatewayError::invalid("logit_bias", message));
        }
        Ok(())
    }
}

struct Reader<D> {
    dropped: D,
}

impl<D: Fn(Parameter) -> bool> Reader<D> {
    fn read<T>(
        &self,
        parameter: Parameter,
        value: Option<Value>,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, GatewayError> {
        let Some(value) = value.filter(|value| !value.is_null() && !(self.dropped)(parameter))
        else {
            return Ok(None);
        };
        let name = parameter.as_str();
        read(&value)
            .map(Some)
            .ok_or_else(|| GatewayError::invalid(name, format!("`{name}` must be {expected}.")))
    }
}

fn numbers(value: &Value) -> Option<Map<String, Value>> {
    let map = value.as_object()?;
    map.values().all(Value::is_number).then(|| map.clone())
}

fn strings(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    }
}

/// The stop sequences without empty ones, which have no effect and which providers refuse.
fn stops(value: &Value) -> Option<Vec<String>> {
    let mut stops = strings(value)?;
    stops.retain(|stop| !stop.is_empty());
    Some(stops)
}
