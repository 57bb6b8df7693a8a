//! Which tools are offered to the model, and which it must use (§2.4, §4.1, §8.4).

use std::{ops::Deref, sync::Arc};

use crate::{
    base::tokens::TokenCount,
    tools::Toolbox,
    wire::{
        chat::{Tool, ToolChoice},
        error::GatewayError,
    },
};

/// The tools of a call: the caller's or the built-in ones, never both.
#[derive(Clone)]
pub(crate) enum OfferedTools {
    Callers(Vec<Tool>),
    BuiltIn(Arc<Toolbox>),
}

impl OfferedTools {
    /// Whether the gateway runs them.
    pub(crate) fn are_built_in(&self) -> bool {
        matches!(self, Self::BuiltIn(_))
    }

    /// Counts what the definitions add to a prompt.
    pub(crate) fn count(&self, count: &mut TokenCount) {
        match self {
            Self::Callers(tools) => Tool::count_all(tools, count),
            Self::BuiltIn(toolbox) => *count += toolbox.count(),
        }
    }
}

impl Deref for OfferedTools {
    type Target = [Tool];

    fn deref(&self) -> &[Tool] {
        match self {
            Self::Callers(tools) => tools,
            Self::BuiltIn(toolbox) => toolbox.definitions(),
        }
    }
}

impl std::fmt::Debug for OfferedTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Checks the tools and `tool_choice`, and reduces the tools to the allowed ones. A choice without tools has no effect
/// and is dropped.
pub(crate) fn resolve(
    mut tools: Vec<Tool>,
    choice: Option<ToolChoice>,
    most: usize,
) -> Result<(Vec<Tool>, Option<ToolChoice>), GatewayError> {
    if tools.len() > most {
        let sent = tools.len();
        let message = format!("`tools` has {sent} definitions; this model accepts at most {most}.");
        return Err(GatewayError::invalid("tools", message));
    }
    if tools.is_empty() {
        return Ok((tools, None));
    }
    let choice = match choice {
        Some(ToolChoice::Named(name)) => {
            must_exist(&tools, &name)?;
            Some(ToolChoice::Named(name))
        }
        Some(ToolChoice::Allowed(allowed)) => {
            if allowed.names.is_empty() {
                let message = "`tool_choice` allows no tool; name one, or send `none`.";
                return Err(GatewayError::invalid("tool_choice", message));
            }
            allowed
                .names
                .iter()
                .try_for_each(|name| must_exist(&tools, name))?;
            tools.retain(|tool| allowed.names.contains(&tool.function.name));
            Some(if allowed.required {
                ToolChoice::Required
            } else {
                ToolChoice::Auto
            })
        }
        other => other,
    };
    Ok((tools, choice))
}

fn must_exist(tools: &[Tool], name: &str) -> Result<(), GatewayError> {
    if tools.iter().any(|tool| tool.function.name == name) {
        return Ok(());
    }
    let message = format!("`tool_choice` names `{name}`, which is not among `tools`.");
    Err(GatewayError::invalid("tool_choice", message))
}
