//! The tools of a request, and the functions that a provider gets for them.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    custom_input,
    echo::echo_value,
    tool_echo::echo,
    tool_names::{CallerTool, ToolKind, ToolNames},
};
use crate::wire::{
    chat::{Schema, Tool},
    error::GatewayError,
};

/// A tool as the caller sent it; which fields are used depends on its type. Other fields are dropped.
#[derive(Debug, Deserialize)]
pub(crate) struct RawTool {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) parameters: Option<Schema>,
    pub(super) strict: Option<bool>,
    /// What the input of a custom tool looks like.
    pub(super) format: Option<InputFormat>,
    /// The tools of a namespace.
    pub(super) tools: Option<Vec<RawTool>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InputFormat {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    syntax: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<String>,
}

/// Where a tool is in the request, for errors: `tools[2]`.
#[derive(Clone, Copy)]
struct Place<'a> {
    list: &'a str,
    at: usize,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.list, self.at)
    }
}

/// Whether agents add a tool of this type to every request. It is left out, because they work without it; the response
/// does not repeat it, so it shows that.
pub(super) fn is_left_out(kind: &str) -> bool {
    kind == "web_search" || kind.starts_with("web_search_") || kind == "image_generation"
}

/// The tools that are offered, collected from the whole request.
#[derive(Debug, Default)]
pub(super) struct ToolSet {
    tools: Vec<(CallerTool, Tool)>,
    index: HashMap<CallerTool, usize>,
    /// Some tools were sent; after the others were left out, none may be offered.
    are_sent: bool,
}

impl ToolSet {
    /// Reads the field `tools`. Returns it in the form in which a response repeats it.
    pub(super) fn read(&mut self, tools: Vec<RawTool>) -> Result<Value, GatewayError> {
        let is_kept = |tool: &&RawTool| !tool.kind.as_deref().is_some_and(is_left_out);
        let echoed: Vec<_> = tools.iter().filter(is_kept).filter_map(echo).collect();
        let echoed = echo_value("tools", &echoed)?;
        self.add_all("tools", tools, false)?;
        Ok(echoed)
    }

    /// Reads the tools of an input item. A tool that was there before is replaced.
    pub(super) fn read_additional(
        &mut self,
        item: usize,
        tools: Vec<RawTool>,
    ) -> Result<(), GatewayError> {
        self.are_sent = true;
        self.add_all(&format!("input[{item}].tools"), tools, true)
    }

    /// Whether tools were sent and none of them is offered.
    pub(super) fn all_left_out(&self) -> bool {
        self.are_sent && self.tools.is_empty()
    }

    /// The functions for the provider, which get their names here.
    pub(super) fn into_functions(self, names: &mut ToolNames) -> Vec<Tool> {
        let plain = self.tools.iter().map(|(tool, _)| tool);
        for tool in plain.filter(|tool| tool.is_plain()) {
            names.add(tool);
        }
        let functions = self.tools.into_iter().map(|(tool, mut function)| {
            names.add(&tool).clone_into(&mut function.function.name);
            function
        });
        functions.collect()
    }

    fn add_all(
        &mut self,
        list: &str,
        tools: Vec<RawTool>,
        replaces: bool,
    ) -> Result<(), GatewayError> {
        for (at, mut tool) in tools.into_iter().enumerate() {
            let place = Place { list, at };
            self.are_sent = true;
            match tool.kind.as_deref() {
                Some("namespace") => {
                    let namespace = tool.take_name(place)?;
                    let list = format!("{place}.tools");
                    let mut about = tool.description;
                    for (at, mut inner) in tool.tools.unwrap_or_default().into_iter().enumerate() {
                        let place = Place { list: &list, at };
                        // Once is enough: the model reads all descriptions.
                        inner.prepend_description(about.take());
                        self.add(place, Some(&namespace), inner, replaces)?;
                    }
                }
                Some(kind) if is_left_out(kind) => {}
                _ => self.add(place, None, tool, replaces)?,
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        place: Place<'_>,
        namespace: Option<&str>,
        mut raw: RawTool,
        replaces: bool,
    ) -> Result<(), GatewayError> {
        let kind = match raw.kind.as_deref() {
            Some("function") => ToolKind::Function,
            Some("custom") => ToolKind::Custom,
            other => return Err(not_served(place, other)),
        };
        let tool = CallerTool {
            kind,
            namespace: namespace.map(str::to_owned),
            name: raw.take_name(place)?,
        };
        let function = match kind {
            ToolKind::Function => {
                Tool::function(String::new(), raw.description, raw.parameters, raw.strict)
            }
            ToolKind::Custom => {
                let description = custom_description(place, raw.description, raw.format)?;
                let parameters = Some(custom_input::PARAMETERS.clone());
                Tool::function(String::new(), description, parameters, None)
            }
        };
        match self.index.entry(tool.clone()) {
            Entry::Vacant(new) => {
                new.insert(self.tools.len());
            }
            Entry::Occupied(known) if replaces => {
                self.tools[*known.get()].1 = function;
                return Ok(());
            }
            // Sent on as it is: what a provider makes of it is the same as in chat.
            Entry::Occupied(_) if tool.is_plain() => {}
            Entry::Occupied(_) => {
                let param = format!("{place}.name");
                let message = format!(
                    "Rename or remove `{place}`: another tool has the same name, `{}`.",
                    tool.name
                );
                return Err(GatewayError::invalid(param, message));
            }
        }
        self.tools.push((tool, function));
        Ok(())
    }
}

impl RawTool {
    fn take_name(&mut self, place: Place<'_>) -> Result<String, GatewayError> {
        self.name.take().ok_or_else(|| {
            let param = format!("{place}.name");
            GatewayError::invalid(&*param, format!("Send `{param}`; it is missing."))
        })
    }

    fn prepend_description(&mut self, text: Option<String>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return;
        };
        self.description = Some(match self.description.take() {
            Some(own) => format!("{text}\n\n{own}"),
            None => text,
        });
    }
}

fn not_served(place: Place<'_>, kind: Option<&str>) -> GatewayError {
    let param = format!("{place}.type");
    let message = match kind {
        Some(kind) => format!(
            "Leave `{place}` out: tools of type `{kind}` are not served here, only `function`, `custom` and \
             `namespace`."
        ),
        None => format!("Send `{param}`; it is missing."),
    };
    GatewayError::invalid(param, message)
}

/// The description of the function in place of a custom tool: the tool's own, and its grammar as text.
fn custom_description(
    place: Place<'_>,
    description: Option<String>,
    format: Option<InputFormat>,
) -> Result<Option<String>, GatewayError> {
    let Some(format) = format else {
        return Ok(description);
    };
    match format.kind.as_deref() {
        None | Some("text") => Ok(description),
        Some("grammar") => {
            let param = format!("{place}.format.definition");
            let Some(definition) = format.definition else {
                let message = format!("Send `{param}`; it is missing.");
                return Err(GatewayError::invalid(param, message));
            };
            let syntax = format.syntax.as_deref().unwrap_or("lark");
            let grammar = format!("The input must match this {syntax} grammar:\n{definition}");
            Ok(Some(match description {
                Some(own) => format!("{own}\n\n{grammar}"),
                None => grammar,
            }))
        }
        Some(other) => {
            let param = format!("{place}.format.type");
            let message = format!("Send `text` or `grammar` as `{param}`; it is `{other}`.");
            Err(GatewayError::invalid(param, message))
        }
    }
}
