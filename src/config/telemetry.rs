//! Where traces and metrics are sent, by the environment variables that every program with OpenTelemetry reads.

use std::{collections::BTreeMap, time::Duration};

use axum::http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use super::values::Environment;
use crate::telemetry::{Sampler, Settings, Target};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_BATCH_DELAY: Duration = Duration::from_secs(5);
const DEFAULT_METRICS_INTERVAL: Duration = Duration::from_mins(1);

/// Exporters that programs know. Only `otlp` sends something here.
const EXPORTERS: [&str; 6] = ["otlp", "none", "console", "logging", "prometheus", "zipkin"];

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
    // Variables that other programs on this machine read as well are looked at only if something is sent.
    if !variables.has_endpoint() || variables.flag("OTEL_SDK_DISABLED") {
        return None;
    }
    let traces = variables.target("TRACES", "/v1/traces");
    let metrics = variables.target("METRICS", "/v1/metrics");
    if traces.is_none() && metrics.is_none() {
        return None;
    }
    Some(Settings {
        traces,
        metrics,
        resource: variables.resource(),
        sampler: variables.sampler(),
        batch_delay: variables.milliseconds("OTEL_BSP_SCHEDULE_DELAY", DEFAULT_BATCH_DELAY),
        metrics_interval: variables
            .milliseconds("OTEL_METRIC_EXPORT_INTERVAL", DEFAULT_METRICS_INTERVAL),
        records_messages: variables.flag("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"),
        propagates: variables.propagates(),
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

    fn has_endpoint(&self) -> bool {
        ["", "TRACES_", "METRICS_"].iter().any(|kind| {
            self.text(&format!("OTEL_EXPORTER_OTLP_{kind}ENDPOINT"))
                .is_some()
        })
    }

    /// Where one kind of data is sent; `None`: nowhere.
    fn target(&mut self, kind: &str, path: &str) -> Option<Target> {
        let exporter = format!("OTEL_{kind}_EXPORTER");
        let exporters = self.text(&exporter).unwrap_or("otlp").to_owned();
        let mut exporters = exporters.split(',').map(str::trim);
        if !exporters.clone().all(|name| EXPORTERS.contains(&name)) {
            self.mistake(&exporter, "must be `otlp` or `none`");
        }
        // Other programs' exporters are not here.
        if !exporters.any(|name| name == "otlp") {
            return None;
        }
        let url = self.url(kind, path)?;
        self.check_protocol(kind);
        let timeout = self.own_or_common(kind, "TIMEOUT");
        Some(Target {
            url,
            headers: self.headers(kind),
            timeout: self.milliseconds(&timeout, DEFAULT_TIMEOUT),
        })
    }

    /// The name of the variable for one kind of data if it is set, else that for all kinds.
    fn own_or_common(&self, kind: &str, what: &str) -> String {
        let own = format!("OTEL_EXPORTER_OTLP_{kind}_{what}");
        match self.text(&own) {
            Some(_) => own,
            None => format!("OTEL_EXPORTER_OTLP_{what}"),
        }
    }

    /// The URL for one kind of data: its own as it is, or the common one with a path.
    fn url(&mut self, kind: &str, path: &str) -> Option<Uri> {
        let common = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let name = self.own_or_common(kind, "ENDPOINT");
        let mut url = self.text(&name)?.to_owned();
        if name == common {
            url = format!("{}{path}", url.trim_end_matches('/'));
        }
        let uri: Option<Uri> = url.parse().ok();
        let uri = uri.filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
        });
        if uri.is_none() {
            self.mistake(&name, "must be a URL, e.g. `http://localhost:4318`");
        }
        uri
    }

    fn check_protocol(&mut self, kind: &str) {
        let name = self.own_or_common(kind, "PROTOCOL");
        if !matches!(self.text(&name), None | Some("http/protobuf")) {
            self.mistake(
                &name,
                "must be `http/protobuf`, which collectors take at port 4318; there is no other protocol here",
            );
        }
    }

    /// Whether W3C trace context is among the propagators.
    fn propagates(&self) -> bool {
        let names = self.text("OTEL_PROPAGATORS").unwrap_or("tracecontext");
        names.split(',').any(|name| name.trim() == "tracecontext")
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

    fn headers(&mut self, kind: &str) -> Vec<(HeaderName, HeaderValue)> {
        let name = self.own_or_common(kind, "HEADERS");
        let mut headers = Vec::new();
        for (key, value) in self.pairs(&name) {
            let key = HeaderName::try_from(key).ok();
            let value = HeaderValue::try_from(value).ok();
            let Some((key, mut value)) = key.zip(value) else {
                self.mistake(&name, "has a name or a value that no header can have");
                continue;
            };
            value.set_sensitive(true);
            headers.push((key, value));
        }
        headers
    }

    /// What is said of this program; each name is there once.
    fn resource(&mut self) -> Vec<(String, String)> {
        let known = [
            ("service.name", "tollgate".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            // Tells the gateways of a fleet apart, whose totals would replace each other.
            ("service.instance.id", instance()),
            ("telemetry.sdk.name", "tollgate".to_owned()),
            ("telemetry.sdk.language", "rust".to_owned()),
        ];
        let known = known.map(|(key, value)| (key.to_owned(), value));
        let mut resource = BTreeMap::from(known);
        resource.extend(self.pairs("OTEL_RESOURCE_ATTRIBUTES"));
        let name = self.text("OTEL_SERVICE_NAME").map(str::to_owned);
        resource.extend(name.map(|name| ("service.name".to_owned(), name)));
        resource.into_iter().collect()
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

/// A random UUID for this process.
fn instance() -> String {
    let random = rand::random::<u128>();
    let version = 4 << 76;
    let variant = 2 << 62;
    let id = random & !(0xf << 76) & !(3 << 62) | version | variant;
    let hex = format!("{id:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| &hex[part]).join("-")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Settings, telemetry};

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    fn read(variables: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let (settings, mistakes) = telemetry(&variables.iter().map(owned).collect());
        (
            settings,
            mistakes.into_iter().map(|mistake| mistake.name).collect(),
        )
    }

    fn settings(more: &[(&str, &str)]) -> Settings {
        let variables: Vec<_> = [ENDPOINT].iter().chain(more).copied().collect();
        let (settings, mistakes) = read(&variables);
        assert_eq!(mistakes, Vec::<String>::new());
        settings.expect("there is an endpoint")
    }

    #[test]
    fn nothing_is_looked_at_without_an_endpoint() {
        let elsewhere = [
            ("OTEL_SDK_DISABLED", "1"),
            ("OTEL_TRACES_EXPORTER", "nothing"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ];
        let (settings, mistakes) = read(&elsewhere);
        assert!(settings.is_none() && mistakes.is_empty(), "{mistakes:?}");
    }

    #[test]
    fn each_kind_of_data_has_its_own_target() {
        let common = settings(&[]);
        let urls = |settings: &Settings| {
            let targets = [&settings.traces, &settings.metrics];
            targets.map(|target| target.as_ref().map(|target| target.url.to_string()))
        };
        let url = |text: &str| Some(text.to_owned());
        let both = [
            url("http://collector:4318/v1/traces"),
            url("http://collector:4318/v1/metrics"),
        ];
        assert_eq!(urls(&common), both);
        let own = settings(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces/in"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=a%20b"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=common"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "250"),
        ]);
        assert_eq!(urls(&own)[0], url("https://traces/in"));
        let (traces, metrics) = own.traces.zip(own.metrics).expect("both are sent");
        assert_eq!(traces.headers.len(), 1);
        assert_eq!(traces.headers[0].1, "a b");
        assert_eq!(metrics.headers[0].1, "common");
        assert_eq!(metrics.timeout, Duration::from_millis(250));
        assert_eq!(traces.timeout, super::DEFAULT_TIMEOUT);
    }

    #[test]
    fn other_exporters_are_not_here() {
        let of = |exporters| {
            let settings = settings(&[("OTEL_METRICS_EXPORTER", exporters)]);
            (settings.traces.is_some(), settings.metrics.is_some())
        };
        assert_eq!(of("prometheus"), (true, false));
        assert_eq!(of("none"), (true, false));
        assert_eq!(of("console, otlp"), (true, true));
    }

    #[test]
    fn mistakes_name_their_variables() {
        for (name, value) in [
            ("OTEL_SDK_DISABLED", "maybe"),
            ("OTEL_TRACES_EXPORTER", "oltp"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "no value"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_RESOURCE_ATTRIBUTES", "team"),
        ] {
            let (_, mistakes) = read(&[ENDPOINT, (name, value)]);
            assert!(mistakes.iter().any(|named| named == name), "{mistakes:?}");
            assert!(mistakes.iter().all(|named| named == name), "{mistakes:?}");
        }
    }

    #[test]
    fn the_resource_names_each_attribute_once() {
        let resource = settings(&[
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.version=2,service.name=a,team=x,team=y",
            ),
            ("OTEL_SERVICE_NAME", "b"),
        ]);
        let of = |name: &str| {
            let mut named = resource.resource.iter().filter(|(key, _)| key == name);
            let value = named.next().map(|(_, value)| value.clone());
            assert!(named.next().is_none(), "{name} is there twice");
            value.unwrap_or_default()
        };
        assert_eq!(
            [of("service.name"), of("service.version"), of("team")],
            ["b", "2", "y"]
        );
        let other = settings(&[]);
        let instance = of("service.instance.id");
        assert_eq!(instance.len(), 36, "{instance}");
        assert!(!other.resource.iter().any(|(_, value)| *value == instance));
    }

    #[test]
    fn traces_go_on_unless_the_operator_says_no() {
        assert!(settings(&[]).propagates);
        assert!(settings(&[("OTEL_PROPAGATORS", "baggage, tracecontext")]).propagates);
        assert!(!settings(&[("OTEL_PROPAGATORS", "none")]).propagates);
    }
}
