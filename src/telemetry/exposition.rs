//! Metrics for OTLP, made of the text that Prometheus gets. So both have the same, and each is counted once.

use std::collections::BTreeMap;

use super::proto::{
    Data, Gauge, Histogram, HistogramPoint, KeyValue, Metric, NumberPoint, Sum, Temporality,
};

/// The metrics and labels whose names have dots by the conventions for generative AI.
const DOTTED: [(&str, &str); 10] = [
    (
        "gen_ai_client_operation_duration",
        "gen_ai.client.operation.duration",
    ),
    ("gen_ai_client_token_usage", "gen_ai.client.token.usage"),
    ("gen_ai_operation_name", "gen_ai.operation.name"),
    ("gen_ai_provider_name", "gen_ai.provider.name"),
    ("gen_ai_request_model", "gen_ai.request.model"),
    ("gen_ai_response_model", "gen_ai.response.model"),
    (
        "gen_ai_server_request_duration",
        "gen_ai.server.request.duration",
    ),
    (
        "gen_ai_server_time_to_first_token",
        "gen_ai.server.time_to_first_token",
    ),
    ("gen_ai_token_type", "gen_ai.token.type"),
    ("error_type", "error.type"),
];

/// A metric that is being read.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    unit: &'a str,
    numbers: Vec<NumberPoint>,
    /// By their labels as they are written, without that of the bucket.
    histograms: BTreeMap<String, HistogramPoint>,
}

/// Reads `OpenMetrics` text of this program; lines that are not understood are left out.
pub(super) fn metrics(text: &str, started: u64, now: u64) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let mut family = Family::default();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name) = (words.next(), words.next().unwrap_or_default());
            let rest = words.next().unwrap_or_default();
            if name != family.name {
                metrics.extend(std::mem::take(&mut family).into_metric());
                family.name = name;
            }
            match what {
                Some("HELP") => family.help = rest,
                Some("TYPE") => family.kind = rest,
                Some("UNIT") => family.unit = rest,
                _ => {}
            }
        } else if let Some(sample) = Sample::read(line) {
            family.add(sample, started, now);
        }
    }
    metrics.extend(family.into_metric());
    metrics
}

impl Family<'_> {
    fn add(&mut self, sample: Sample<'_>, started: u64, now: u64) {
        if self.kind != "histogram" {
            let is_total = self.kind == "counter";
            self.numbers.push(NumberPoint {
                start_time_unix_nano: if is_total { started } else { 0 },
                time_unix_nano: now,
                value: Some(sample.value),
                attributes: attributes(&sample.labels),
            });
            return;
        }
        let mut labels = sample.labels;
        let bound = labels.iter().position(|(name, _)| *name == "le");
        let bound = bound.map(|at| labels.remove(at).1);
        let point = self.histograms.entry(format!("{labels:?}"));
        let point = point.or_insert_with(|| HistogramPoint {
            start_time_unix_nano: started,
            time_unix_nano: now,
            attributes: attributes(&labels),
            ..HistogramPoint::default()
        });
        if sample.name.ends_with("_sum") {
            point.sum = Some(sample.value);
        } else if sample.name.ends_with("_count") {
            point.count = whole(sample.value);
        } else if let Some(bound) = bound {
            // Written as how many are at most this large; wanted is how many are in each bucket.
            let below: u64 = point.bucket_counts.iter().sum();
            point
                .bucket_counts
                .push(whole(sample.value).saturating_sub(below));
            point
                .explicit_bounds
                .extend(bound.parse::<f64>().ok().filter(|bound| bound.is_finite()));
        }
    }

    fn into_metric(self) -> Option<Metric> {
        let cumulative = Temporality::Cumulative.into();
        let data = match self.kind {
            "counter" => Data::Sum(Sum {
                points: self.numbers,
                temporality: cumulative,
                is_monotonic: true,
            }),
            "gauge" => Data::Gauge(Gauge {
                points: self.numbers,
            }),
            "histogram" => Data::Histogram(Histogram {
                points: self.histograms.into_values().collect(),
                temporality: cumulative,
            }),
            _ => return None,
        };
        let name = self.name.strip_suffix(self.unit).unwrap_or(self.name);
        Some(Metric {
            name: dotted(name.trim_end_matches('_')),
            description: self.help.to_owned(),
            unit: match self.unit {
                "seconds" => "s".into(),
                "bytes" => "By".into(),
                "" => String::new(),
                "tokens" => "{token}".into(),
                unit => format!("{{{unit}}}"),
            },
            data: Some(data),
        })
    }
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    // An empty label is one that is not there.
    let labels = labels.iter().filter(|(_, value)| !value.is_empty());
    let labels = labels.map(|(name, value)| KeyValue::new(&dotted(name), value.as_str()));
    labels.collect()
}

fn dotted(name: &str) -> String {
    let known = DOTTED.iter().find(|(plain, _)| *plain == name);
    known.map_or(name, |(_, dotted)| dotted).to_owned()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative"
)]
fn whole(count: f64) -> u64 {
    count as u64
}

/// One line of numbers: `name{label="value"} 1`.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner;
            while !rest.starts_with('}') {
                let (label, quoted) = rest.split_once("=\"")?;
                let (value, after) = unquoted(quoted)?;
                labels.push((label, value));
                rest = after.strip_prefix(',').unwrap_or(after);
            }
            rest = &rest[1..];
        }
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self {
            name,
            labels,
            value,
        })
    }
}

/// A value up to its closing quotation mark, and what follows.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            _ => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP tollgate_calls Calls.
# TYPE tollgate_calls counter
tollgate_calls_total{model=\"a \\\"b\\\", }\",outcome=\"x\"} 3
tollgate_calls_total{model=\"c\",outcome=\"y\"} 4
# HELP tollgate_took_seconds Time.
# TYPE tollgate_took_seconds histogram
# UNIT tollgate_took_seconds seconds
tollgate_took_seconds_sum{route=\"/a\"} 1.5
tollgate_took_seconds_count{route=\"/a\"} 6
tollgate_took_seconds_bucket{le=\"0.1\",route=\"/a\"} 1
tollgate_took_seconds_bucket{le=\"1.0\",route=\"/a\"} 5
tollgate_took_seconds_bucket{le=\"+Inf\",route=\"/a\"} 6
# HELP tollgate_held_nano_usd Held.
# TYPE tollgate_held_nano_usd gauge
# UNIT tollgate_held_nano_usd nano_usd
tollgate_held_nano_usd 7
# EOF
";

    #[test]
    fn text_becomes_the_same_metrics() {
        let metrics = metrics(TEXT, 1, 2);
        let shown: Vec<_> = metrics
            .iter()
            .map(|metric| (metric.name.as_str(), metric.unit.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                ("tollgate_calls", ""),
                ("tollgate_took", "s"),
                ("tollgate_held", "{nano_usd}")
            ]
        );
        let Some(Data::Sum(calls)) = &metrics[0].data else {
            panic!("a counter: {:?}", metrics[0]);
        };
        assert!(calls.is_monotonic);
        assert_eq!(calls.points.len(), 2);
        assert_eq!(calls.points[0].value, Some(3.0));
        let expected = [
            KeyValue::new("model", "a \"b\", }"),
            KeyValue::new("outcome", "x"),
        ];
        assert_eq!(calls.points[0].attributes, expected);
        assert_eq!(
            (
                calls.points[0].start_time_unix_nano,
                calls.points[0].time_unix_nano
            ),
            (1, 2)
        );
        let Some(Data::Histogram(took)) = &metrics[1].data else {
            panic!("a histogram: {:?}", metrics[1]);
        };
        let [point] = took.points.as_slice() else {
            panic!("{took:?}")
        };
        assert_eq!((point.count, point.sum), (6, Some(1.5)));
        assert_eq!(
            (&*point.bucket_counts, &*point.explicit_bounds),
            (&[1, 4, 1][..], &[0.1, 1.0][..])
        );
        assert_eq!(point.attributes, [KeyValue::new("route", "/a")]);
        assert!(
            matches!(&metrics[2].data, Some(Data::Gauge(held)) if held.points[0].value == Some(7.0))
        );
    }

    #[test]
    fn names_of_the_conventions_have_their_dots() {
        let text = "# TYPE gen_ai_client_token_usage histogram\ngen_ai_client_token_usage_count{gen_ai_token_type=\"input\"} 1\n";
        let metrics = metrics(text, 1, 2);
        assert_eq!(metrics[0].name, "gen_ai.client.token.usage");
        let Some(Data::Histogram(usage)) = &metrics[0].data else {
            panic!("{metrics:?}")
        };
        assert_eq!(
            usage.points[0].attributes,
            [KeyValue::new("gen_ai.token.type", "input")]
        );
    }
}
