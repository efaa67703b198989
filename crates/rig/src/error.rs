//! What a failed call is to rig, and to the model.

use rig_core::tool::{ToolErrorKind, ToolExecutionError};
use std::error::Error;
use stead_provider::ToolError;
use stead_types::error::Code;

/// A failed call as rig's error: with the stable code, whether it is worth a second try, and what happened in
/// words for the model, output of the command included. The [`ToolError`] is its source.
pub fn tool_execution_error(error: ToolError) -> ToolExecutionError {
    // A tool's own code has said in rig's words what happened.
    if let ToolError::Local { source, .. } = &error
        && let Some(own) = source.downcast_ref::<ToolExecutionError>()
    {
        return own.clone();
    }
    let (code, retryable) = (error.code(), error.retryable());
    ToolExecutionError::new(kind(&error), told(&error))
        .with_code(code)
        .with_retryable(retryable)
        .with_source(error)
}

fn kind(error: &ToolError) -> ToolErrorKind {
    match error {
        ToolError::Arguments { .. } => ToolErrorKind::InvalidArgs,
        ToolError::TimedOut { .. } => ToolErrorKind::Timeout,
        ToolError::NotDeclared { .. } => ToolErrorKind::NotFound,
        ToolError::Unavailable { .. }
        | ToolError::Provision { .. }
        | ToolError::ProvisionAborted { .. }
        | ToolError::PlaceDied { .. }
        | ToolError::Execute { .. } => ToolErrorKind::Provider,
        // The enum can grow; what is not known here is a failure all the same.
        _ => ToolErrorKind::Other,
    }
}

/// The error and what caused it, in one text.
fn told(error: &ToolError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
