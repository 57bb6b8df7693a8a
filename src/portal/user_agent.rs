//! Names browsers by their `User-Agent` header.

/// Marker and name, in order of precedence: most browsers also claim to be those further down.
const BROWSERS: [(&str, &str); 7] = [
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
];
const SYSTEMS: [(&str, &str); 7] = [
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
];

/// A name such as "Firefox on Windows". An unknown agent is returned unchanged.
pub(crate) fn browser_name(agent: &str) -> String {
    let name = |known: &[(&str, &'static str)]| {
        let mut known = known.iter();
        let found = known.find(|(mark, _)| agent.contains(mark));
        found.map(|(_, name)| *name)
    };
    match (name(&BROWSERS), name(&SYSTEMS)) {
        (Some(browser), Some(system)) => format!("{browser} on {system}"),
        (Some(browser), None) => browser.to_owned(),
        (None, _) if agent.trim().is_empty() => "Unknown".to_owned(),
        (None, _) => agent.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::browser_name;

    #[test]
    fn browsers_are_named() {
        for (agent, name) in [
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
                "Firefox on Linux",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36 Edg/140.0",
                "Edge on Windows",
            ),
            (
                "Mozilla/5.0 (Linux; Android 16) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Mobile Safari/537.36",
                "Chrome on Android",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 Version/19.0 Safari/604.1",
                "Safari on iPhone",
            ),
            ("curl/8.14.1", "curl/8.14.1"),
            ("", "Unknown"),
        ] {
            assert_eq!(browser_name(agent), name, "{agent}");
        }
    }
}
