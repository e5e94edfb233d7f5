//! The two formats of metrics: OpenMetrics 1.0, and Prometheus's older text format, which `promtool check metrics` and tools
//! without OpenMetrics read.

/// A format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    OpenMetrics,
    Text,
}

impl Format {
    /// The format that the Accept header asks for: text only if it names text and not OpenMetrics, which has units.
    pub(crate) fn asked(accept: Option<&str>) -> Self {
        let names = |kind: &str| {
            accept.unwrap_or_default().split(',').any(|range| {
                let mut parts = range.split(';').map(str::trim);
                let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(kind));
                let refused = |part: &str| {
                    let weight = part.strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
                    weight == Some(0.0)
                };
                named && !parts.any(refused)
            })
        };
        if names("text/plain") && !names("application/openmetrics-text") {
            Format::Text
        } else {
            Format::OpenMetrics
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts OpenMetrics text to this format.
    pub(crate) fn of(self, open_metrics: String) -> String {
        match self {
            Format::OpenMetrics => open_metrics,
            Format::Text => to_text(&open_metrics),
        }
    }
}

/// In the text format a family has the name of its samples, so that a counter's ends in `_total` and an info's in `_info`. It
/// has no type info, no units and no end marker.
fn to_text(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // The name depends on the type, which is on the next line.
            help = rest;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some(help) = help.strip_prefix(name) {
                // The text format escapes no quotes here.
                out.push_str(&format!("# HELP {name}{suffix}{}\n", help.replace("\\\"", "\"")));
            }
            out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_given() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
                          q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [None, Some(""), Some("*/*"), Some("text/html, */*;q=0.8"), Some(prometheus)] {
            assert_eq!(Format::asked(accept), Format::OpenMetrics, "{accept:?}");
        }
        let without = "application/openmetrics-text;version=1.0.0; q=0, text/plain";
        for accept in ["text/plain", "Text/Plain; version=0.0.4", "text/plain;q=0.5, */*;q=0.1", without] {
            assert_eq!(Format::asked(Some(accept)), Format::Text, "{accept:?}");
        }
        assert_eq!(Format::asked(Some("text/plain;q=0")), Format::OpenMetrics);
    }

    #[test]
    fn the_text_format_names_families_as_their_samples() {
        let open_metrics = "# HELP a_seconds The \\\"a\\\".\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\n\
                            a_seconds{node=\"# x\"} 1.0\n# HELP b B.\n# TYPE b counter\nb_total 2\n\
                            # HELP c C.\n# TYPE c info\nc_info{d=\"e\"} 1\n# EOF\n";
        assert_eq!(
            Format::Text.of(open_metrics.to_owned()),
            "# HELP a_seconds The \"a\".\n# TYPE a_seconds gauge\na_seconds{node=\"# x\"} 1.0\n\
             # HELP b_total B.\n# TYPE b_total counter\nb_total 2\n\
             # HELP c_info C.\n# TYPE c_info gauge\nc_info{d=\"e\"} 1\n"
        );
    }
}
