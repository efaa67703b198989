//! A place's tools as tools of a [rig](rig_core) agent.
//!
//! The model calls `greet({"who": …})`, the command that the place has for `greet` runs there, and what it
//! prints is the tool's result:
//!
//! ```no_run
//! use std::sync::Arc;
//! use stead_provider::ToolPlace;
//!
//! # fn tools(docker: Arc<dyn stead_provider::Provider>) -> Result<(), Box<dyn std::error::Error>> {
//! let place = Arc::new(ToolPlace::new(docker).tool("greet", "echo hello {{who}}")?);
//! let tools = stead_rig::tools(&place)?;
//! // AgentBuilder::new(model).dynamic_tools(tools)
//! # Ok(())
//! # }
//! ```
//!
//! A tool that exists already keeps its definition, and its own code becomes the local implementation: see
//! [`on_place`].
#![forbid(unsafe_code)]

mod error;

pub use error::tool_execution_error;

use rig_core::message::{EmptyToolName, ToolName};
use rig_core::tool::{DynamicTool, ToolOutput};
use serde_json::{Value, json};
use std::sync::Arc;
use stead_provider::ToolPlace;

/// Every tool that has a command on the place, as a tool of an agent. Its arguments are the placeholders of the
/// command: strings, all of them required.
///
/// A later [`ToolPlace::set_command`] is obeyed by the next call; the definition that the model sees stays.
pub fn tools(place: &Arc<ToolPlace>) -> Result<Vec<DynamicTool>, EmptyToolName> {
    place
        .tools()
        .into_iter()
        .map(|(name, arguments)| {
            let description = format!("Runs the command `{name}` on {}.", place.name());
            tool(place, &name, description, parameters(&arguments))
        })
        .collect()
}

/// One tool that has a command on the place, with a description and a JSON schema of its arguments that tell
/// the model more than [`tools`] can.
///
/// Without a command a call of it is an error, also on a place that is not strict: there is nothing else that
/// could run.
pub fn tool(
    place: &Arc<ToolPlace>,
    name: &str,
    description: impl Into<String>,
    parameters: Value,
) -> Result<DynamicTool, EmptyToolName> {
    let (name, place) = (ToolName::new(name)?, Arc::clone(place));
    let called = name.to_string();
    Ok(DynamicTool::new(
        name,
        description,
        parameters,
        move |arguments| {
            let (place, called) = (Arc::clone(&place), called.clone());
            Box::pin(async move {
                let none =
                    || async { Err("it has no command on the place and no local implementation".into()) };
                run(place.run_tool(&called, &arguments, none).await)
            })
        },
    ))
}

/// An agent's tool, put on a place. With a command there, a call runs that; without one it runs the tool's own
/// code, on the host and with a warning, unless the place is strict.
pub fn on_place(place: &Arc<ToolPlace>, own: DynamicTool) -> DynamicTool {
    let (definition, place) = (own.definition(), Arc::clone(place));
    let called = definition.name.to_string();
    DynamicTool::new_with_context(
        definition.name,
        definition.description,
        definition.parameters,
        move |context, arguments: Value| {
            let (place, called, own) = (Arc::clone(&place), called.clone(), own.clone());
            Box::pin(async move {
                let passed = arguments.clone();
                let local = || async move {
                    let output = own.execute_with(context, passed).await?;
                    Ok(output.render())
                };
                run(place.run_tool(&called, &arguments, local).await)
            })
        },
    )
}

fn run(
    result: Result<String, stead_provider::ToolError>,
) -> Result<ToolOutput, rig_core::tool::ToolExecutionError> {
    result.map(ToolOutput::text).map_err(tool_execution_error)
}

/// The schema of a command's placeholders.
fn parameters(arguments: &[String]) -> Value {
    let properties: serde_json::Map<String, Value> = arguments
        .iter()
        .map(|name| (name.clone(), json!({"type": "string"})))
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": arguments,
        "additionalProperties": false,
    })
}
