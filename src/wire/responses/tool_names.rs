//! The names by which a provider knows the tools of one request.
//!
//! A provider knows functions only, in one flat list, and takes few characters in a name. So a tool of a namespace is
//! offered as `NAMESPACE__NAME`, a custom tool as a function. A name that does not fit, or that another tool has, gets a
//! digest. The table leads back from each name to exactly one tool, so that no call reaches another tool than the one
//! that the model called.

use std::{collections::HashMap, fmt::Write as _};

use sha2::{Digest as _, Sha256};

/// The longest name that every provider takes.
const MAX_BYTES: usize = 64;
/// How many hexadecimal digits of the digest are used.
const DIGITS: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ToolKind {
    Function,
    /// A tool whose input is plain text.
    Custom,
}

/// A tool as the caller names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallerTool {
    pub kind: ToolKind,
    pub namespace: Option<String>,
    pub name: String,
}

impl CallerTool {
    pub(crate) fn function(name: String) -> Self {
        Self {
            kind: ToolKind::Function,
            namespace: None,
            name,
        }
    }

    /// Whether a provider knows it as the caller does.
    pub(crate) fn is_plain(&self) -> bool {
        self.kind == ToolKind::Function && self.namespace.is_none()
    }
}

/// The names of the tools of one request, in both directions.
#[derive(Debug, Default)]
pub(crate) struct ToolNames {
    by_tool: HashMap<CallerTool, String>,
    by_name: HashMap<String, CallerTool>,
}

impl ToolNames {
    /// The name of the tool, which it gets now if it has none. A plain function keeps its own; all that are offered are
    /// added before other tools.
    pub(crate) fn add(&mut self, tool: &CallerTool) -> &str {
        if !self.by_tool.contains_key(tool) {
            let name = if tool.is_plain() {
                tool.name.clone()
            } else {
                self.free_name(tool)
            };
            self.by_name.insert(name.clone(), tool.clone());
            self.by_tool.insert(tool.clone(), name);
        }
        &self.by_tool[tool]
    }

    /// The name of a tool that was called earlier and may not be offered now.
    pub(crate) fn add_called(&mut self, tool: CallerTool) -> String {
        if tool.is_plain() {
            tool.name
        } else {
            self.add(&tool).to_owned()
        }
    }

    /// The name of a tool that was added.
    pub(crate) fn name_of(&self, tool: &CallerTool) -> Option<&str> {
        self.by_tool.get(tool).map(String::as_str)
    }

    /// The tool that a provider calls by this name. Any other name is that of a plain function.
    pub(crate) fn tool(&self, name: &str) -> CallerTool {
        let known = self.by_name.get(name).cloned();
        known.unwrap_or_else(|| CallerTool::function(name.to_owned()))
    }

    fn free_name(&self, tool: &CallerTool) -> String {
        let joined = match &tool.namespace {
            Some(namespace) => format!("{namespace}__{}", tool.name),
            None => tool.name.clone(),
        };
        let mut name = joined.clone();
        let mut attempt = 0;
        while !is_accepted(&name) || self.by_name.contains_key(&name) {
            name = with_digest(&joined, tool, attempt);
            attempt += 1;
        }
        name
    }
}

/// Whether every provider takes the name.
fn is_accepted(name: &str) -> bool {
    (1..=MAX_BYTES).contains(&name.len()) && name.bytes().all(is_accepted_byte)
}

fn is_accepted_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// The beginning of the name and a digest of the tool. It depends on the tool alone, so that the tool has the same name
/// in every turn of a conversation.
fn with_digest(joined: &str, tool: &CallerTool, attempt: u32) -> String {
    let is_char_accepted = |c: char| u8::try_from(c).is_ok_and(is_accepted_byte);
    let start = joined.chars().take(MAX_BYTES - DIGITS - 1);
    let mut name: String = start
        .map(|c| if is_char_accepted(c) { c } else { '_' })
        .collect();
    let kind = match tool.kind {
        ToolKind::Function => "function",
        ToolKind::Custom => "custom",
    };
    let mut digest = Sha256::new();
    for field in [
        kind,
        tool.namespace.as_deref().unwrap_or_default(),
        &tool.name,
    ] {
        // The length keeps apart what a separator would not.
        digest.update((field.len() as u64).to_le_bytes());
        digest.update(field.as_bytes());
    }
    digest.update([u8::from(tool.namespace.is_some())]);
    digest.update(attempt.to_le_bytes());
    name.push('_');
    for byte in digest.finalize().iter().take(DIGITS / 2) {
        let _ = write!(name, "{byte:02x}"); // writing to a string cannot fail
    }
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tool(kind: ToolKind, namespace: Option<&str>, name: &str) -> CallerTool {
        CallerTool {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    #[test]
    fn names_are_joined_where_they_fit() {
        use ToolKind::{Custom, Function};

        let mut names = ToolNames::default();
        let add = tool(Function, Some("mcp__tiny"), "add");
        assert_eq!(names.add(&add), "mcp__tiny__add");
        assert_eq!(names.tool("mcp__tiny__add"), add);
        let patch = tool(Custom, None, "apply_patch");
        assert_eq!(names.add(&patch), "apply_patch");
        assert_eq!(names.tool("apply_patch"), patch);
        assert_eq!(
            names.tool("unknown"),
            CallerTool::function("unknown".into())
        );

        let long = tool(Function, Some(&"n".repeat(40)), &"t".repeat(40));
        let name = names.add(&long).to_owned();
        assert_eq!(name.len(), MAX_BYTES);
        assert!(name.starts_with(&format!("{}__tt", "n".repeat(40))));
        assert_eq!(names.tool(&name), long);
        let odd = tool(Function, Some("my server"), "päth.read");
        let name = names.add(&odd).to_owned();
        assert!(name.starts_with("my_server__p_th_read_"), "{name}");
        assert_eq!(ToolNames::default().add(&odd), name, "the same every time");
    }

    #[test]
    fn a_name_that_is_taken_leads_to_the_tool_that_has_it() {
        use ToolKind::{Custom, Function};

        let mut names = ToolNames::default();
        let plain = CallerTool::function("a__b".into());
        let namespaced = tool(Function, Some("a"), "b");
        let custom = tool(Custom, Some("a"), "b");
        assert_eq!(names.add(&plain), "a__b");
        let second = names.add(&namespaced).to_owned();
        let third = names.add(&custom).to_owned();
        assert_ne!(second, third);
        assert_eq!(names.tool("a__b"), plain);
        assert_eq!(names.tool(&second), namespaced);
        assert_eq!(names.tool(&third), custom);
        assert_eq!(names.name_of(&custom), Some(&*third));
        assert_eq!(names.name_of(&tool(Custom, None, "b")), None);
    }

    fn any_tool() -> impl Strategy<Value = CallerTool> {
        let kind = prop_oneof![Just(ToolKind::Function), Just(ToolKind::Custom)];
        // Few letters, so that names clash; now and then a long or an odd one.
        let name = prop_oneof![8 => "[ab_]{0,5}", 1 => "[a-c_]{60,70}", 1 => "(?s).{0,80}"];
        let namespace = prop::option::of("[ab_]{1,4}");
        (kind, namespace, name).prop_map(|(kind, namespace, name)| CallerTool {
            kind,
            namespace,
            name,
        })
    }

    proptest! {
        /// Every tool has a name of its own, which leads back to it and which providers take.
        #[test]
        fn names_are_unique_and_lead_back(tools in prop::collection::vec(any_tool(), 0..60)) {
            let mut names = ToolNames::default();
            let (plain, others): (Vec<_>, Vec<_>) =
                tools.iter().partition(|tool| tool.is_plain());
            for tool in plain.into_iter().chain(others) {
                let name = names.add(tool).to_owned();
                prop_assert_eq!(names.add(tool), &name);
                prop_assert!(tool.is_plain() || is_accepted(&name), "{}", name);
            }
            for tool in &tools {
                let name = names.name_of(tool).unwrap();
                prop_assert_eq!(&names.tool(name), tool);
            }
        }
    }
}
