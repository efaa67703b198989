//! Tool places: a provider plus a command template for each tool.

mod argv;
mod command;
mod expansion;
mod heredoc;
mod scan;
mod template;

pub use argv::ArgvTemplate;
pub use command::ToolCommand;
pub use template::{Context, ShellTemplate, TemplateError, TextTemplate};
