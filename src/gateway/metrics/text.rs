//! Prometheus' own text format, made of `OpenMetrics` text. They differ in a few comments: a counter's have its whole
//! name, and there are no units and no end mark.

pub(super) fn prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 4096);
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        let comment = line.strip_prefix("# ");
        match comment.map(|comment| comment.split_once(' ').unwrap_or((comment, ""))) {
            Some(("HELP", help)) => {
                let next = lines.peek().copied().unwrap_or_default();
                let (name, words) = help.split_once(' ').unwrap_or((help, ""));
                let suffix = if next.ends_with(" counter") {
                    "_total"
                } else {
                    ""
                };
                text.extend(["# HELP ", name, suffix, " ", words, "\n"]);
            }
            Some(("TYPE", kind)) => {
                let (name, kind) = kind.split_once(' ').unwrap_or((kind, "untyped"));
                let suffix = if kind == "counter" { "_total" } else { "" };
                text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            }
            Some(_) => {}
            None => text.extend([line, "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::prometheus;

    #[test]
    fn comments_name_counters_as_their_samples_do() {
        let open_metrics = "\
# HELP a_calls Calls.
# TYPE a_calls counter
a_calls_total{model=\"# EOF\"} 2
# HELP a_took_seconds Time.
# TYPE a_took_seconds histogram
# UNIT a_took_seconds seconds
a_took_seconds_sum 0.5
# EOF
";
        let expected = "\
# HELP a_calls_total Calls.
# TYPE a_calls_total counter
a_calls_total{model=\"# EOF\"} 2
# HELP a_took_seconds Time.
# TYPE a_took_seconds histogram
a_took_seconds_sum 0.5
";
        assert_eq!(prometheus(open_metrics), expected);
    }
}
