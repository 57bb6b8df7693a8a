//! Where traces and metrics are sent, by the environment variables that every program with OpenTelemetry reads.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use super::values::Environment;
use crate::telemetry::{Sampler, Settings};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_BATCH_DELAY: Duration = Duration::from_secs(5);
const DEFAULT_METRICS_INTERVAL: Duration = Duration::from_mins(1);

/// What is wrong with a variable.
pub(crate) struct VariableMistake {
    pub name: String,
    pub message: &'static str,
}

/// `None` without an endpoint, or if the operator has turned it off.
pub(crate) fn telemetry(environment: &Environment) -> (Option<Settings>, Vec<VariableMistake>) {
    let mut variables = Variables {
        environment,
        mistakes: Vec::new(),
    };
    let settings = settings(&mut variables);
    (settings, variables.mistakes)
}

fn settings(variables: &mut Variables<'_>) -> Option<Settings> {
    if variables.flag("OTEL_SDK_DISABLED") {
        return None;
    }
    let traces = variables.endpoint("TRACES", "/v1/traces");
    let metrics = variables.endpoint("METRICS", "/v1/metrics");
    if traces.is_none() && metrics.is_none() {
        return None;
    }
    variables.check_protocol();
    Some(Settings {
        traces,
        metrics,
        headers: variables.headers(),
        timeout: variables.milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", DEFAULT_TIMEOUT),
        resource: variables.resource(),
        sampler: variables.sampler(),
        batch_delay: variables.milliseconds("OTEL_BSP_SCHEDULE_DELAY", DEFAULT_BATCH_DELAY),
        metrics_interval: variables
            .milliseconds("OTEL_METRIC_EXPORT_INTERVAL", DEFAULT_METRICS_INTERVAL),
        records_messages: variables.flag("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"),
    })
}

struct Variables<'a> {
    environment: &'a Environment,
    mistakes: Vec<VariableMistake>,
}

impl Variables<'_> {
    /// An empty variable counts as unset.
    fn text(&self, name: &str) -> Option<&str> {
        let text = self.environment.get(name)?.trim();
        (!text.is_empty()).then_some(text)
    }

    fn mistake(&mut self, name: &str, message: &'static str) {
        let name = name.to_owned();
        self.mistakes.push(VariableMistake { name, message });
    }

    fn flag(&mut self, name: &str) -> bool {
        match self.text(name).map(str::to_ascii_lowercase).as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => {
                self.mistake(name, "must be `true` or `false`");
                false
            }
        }
    }

    /// The URL for one kind of data: its own as it is, or the common one with a path.
    fn endpoint(&mut self, kind: &str, path: &str) -> Option<Uri> {
        let exporter = format!("OTEL_{kind}_EXPORTER");
        match self.text(&exporter) {
            Some("none") => return None,
            Some("otlp") | None => {}
            Some(_) => {
                self.mistake(&exporter, "must be `otlp` or `none`");
                return None;
            }
        }
        let own = format!("OTEL_EXPORTER_OTLP_{kind}_ENDPOINT");
        let (name, url) = if let Some(url) = self.text(&own) {
            (own.as_str(), url.to_owned())
        } else {
            let common = "OTEL_EXPORTER_OTLP_ENDPOINT";
            (
                common,
                format!("{}{path}", self.text(common)?.trim_end_matches('/')),
            )
        };
        let uri: Option<Uri> = url.parse().ok();
        let uri = uri.filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
        });
        if uri.is_none() {
            let name = name.to_owned();
            self.mistake(&name, "must be a URL, e.g. `http://localhost:4318`");
        }
        uri
    }

    fn check_protocol(&mut self) {
        const NAME: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
        if !matches!(self.text(NAME), None | Some("http/protobuf")) {
            self.mistake(
                NAME,
                "must be `http/protobuf`, which collectors take at port 4318; there is no other protocol here",
            );
        }
    }

    /// `name=value` separated by commas, with percent encoding.
    fn pairs(&mut self, name: &str) -> Vec<(String, String)> {
        let text = self.text(name).unwrap_or_default().to_owned();
        let mut pairs = Vec::new();
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let decoded = |text: &str| {
                let text = percent_decode_str(text.trim()).decode_utf8();
                text.ok().map(String::from)
            };
            let pair = pair.split_once('=');
            match pair.and_then(|(key, value)| Some((decoded(key)?, decoded(value)?))) {
                Some(pair) => pairs.push(pair),
                None => self.mistake(name, "must be `name=value`, separated by commas"),
            }
        }
        pairs
    }

    fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        const NAME: &str = "OTEL_EXPORTER_OTLP_HEADERS";
        let mut headers = Vec::new();
        for (key, value) in self.pairs(NAME) {
            let key = HeaderName::try_from(key).ok();
            let value = HeaderValue::try_from(value).ok();
            let Some((key, mut value)) = key.zip(value) else {
                self.mistake(NAME, "has a name or a value that no header can have");
                continue;
            };
            value.set_sensitive(true);
            headers.push((key, value));
        }
        headers
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let mut resource = self.pairs("OTEL_RESOURCE_ATTRIBUTES");
        let named = resource.iter().position(|(key, _)| key == "service.name");
        let named = named.map(|at| resource.remove(at).1);
        let name = self.text("OTEL_SERVICE_NAME").map(str::to_owned).or(named);
        let name = name.unwrap_or_else(|| "tollgate".into());
        let known = [
            ("service.name", name.as_str()),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("telemetry.sdk.name", "tollgate"),
            ("telemetry.sdk.language", "rust"),
        ];
        let known = known.map(|(key, value)| (key.to_owned(), value.to_owned()));
        known.into_iter().chain(resource).collect()
    }

    fn sampler(&mut self) -> Sampler {
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        const SHARE: &str = "OTEL_TRACES_SAMPLER_ARG";
        let name = self
            .text(NAME)
            .unwrap_or("parentbased_always_on")
            .to_owned();
        let (root, follows_parent) = match name.strip_prefix("parentbased_") {
            Some(root) => (root, true),
            None => (name.as_str(), false),
        };
        let share = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => {
                let share: Result<f64, _> = self.text(SHARE).unwrap_or("1").parse();
                let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
                if share.is_none() {
                    self.mistake(SHARE, "must be a number from 0 to 1");
                }
                share.unwrap_or(1.0)
            }
            _ => {
                self.mistake(
                    NAME,
                    "must be always_on, always_off or traceidratio, or one of these with parentbased_ before it",
                );
                1.0
            }
        };
        Sampler {
            share,
            follows_parent,
        }
    }

    fn milliseconds(&mut self, name: &str, default: Duration) -> Duration {
        let Some(text) = self.text(name) else {
            return default;
        };
        if let Ok(milliseconds @ 1..) = text.parse() {
            return Duration::from_millis(milliseconds);
        }
        self.mistake(name, "must be a number of milliseconds");
        default
    }
}
