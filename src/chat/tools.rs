//! Which of the caller's tools the model is offered, and which it must use (SPEC §2.4, §8.4).

use crate::{
    error::GatewayError,
    wire::chat::{Tool, ToolChoice},
};

/// The tools and the choice among them, with `allowed_tools` carried out. A choice without tools
/// means nothing and is dropped.
pub fn offered(
    mut tools: Vec<Tool>,
    choice: Option<ToolChoice>,
    most: usize,
) -> Result<(Vec<Tool>, Option<ToolChoice>), GatewayError> {
    if tools.len() > most {
        let sent = tools.len();
        let message = format!("`tools` has {sent} definitions; this model takes at most {most}.");
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
