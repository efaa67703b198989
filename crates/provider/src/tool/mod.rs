//! Tool places: a provider plus a command template for each tool.

mod argv;
mod command;
mod error;
mod expansion;
mod file;
mod heredoc;
mod place;
mod scan;
mod slot;
mod template;

pub use argv::ArgvTemplate;
pub use command::ToolCommand;
pub use error::{ERROR_OUTPUT_BYTES, OutputTail, ToolError};
pub use file::{PlaceFile, PlaceFileError, PlaceResources, ToolEntry};
pub use place::{ToolEvent, ToolOutput, ToolPlace};
pub use template::{Context, ShellTemplate, TemplateError, TextTemplate};

pub(crate) use slot::{PROBE_LIMIT, probe_timed_out};
