//! What one tool runs: its template, standard input and settings.

use super::argv::ArgvTemplate;
use super::template::{ShellTemplate, TemplateError, TextTemplate};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::time::Duration;
use stead_types::{CommandLine, ComputeConfig, EnvMap, Stdin};

/// The command of one tool. Prefer [`Self::argv`]: no shell reads it, so no quoting can go wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCommand {
    line: Line,
    stdin: Option<TextTemplate>,
    timeout: Option<Duration>,
    env: EnvMap,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Shell(ShellTemplate),
    Argv(ArgvTemplate),
}

impl ToolCommand {
    fn new(line: Line) -> Self {
        Self {
            line,
            stdin: None,
            timeout: None,
            env: EnvMap::default(),
        }
    }

    /// Shell text; each `{{ name }}` becomes one single-quoted word. See [`ShellTemplate`].
    pub fn shell(text: &str) -> Result<Self, TemplateError> {
        ShellTemplate::parse(text).map(|template| Self::new(Line::Shell(template)))
    }

    /// An argument list; each `{{ name }}` is put in as it is. See [`ArgvTemplate`].
    pub fn argv<A: AsRef<str>>(arguments: impl IntoIterator<Item = A>) -> Result<Self, TemplateError> {
        ArgvTemplate::parse(arguments).map(|template| Self::new(Line::Argv(template)))
    }

    /// Text for standard input; each `{{ name }}` is put in as it is. Default: empty and closed.
    pub fn stdin(mut self, text: &str) -> Result<Self, TemplateError> {
        self.stdin = Some(TextTemplate::parse(text).map_err(|error| error.within("stdin"))?);
        Ok(self)
    }

    /// When a call is ended. Default: the place's timeout. Zero is refused when the tool is declared.
    pub fn timeout(mut self, after: Duration) -> Self {
        self.timeout = Some(after);
        self
    }

    /// Sets a variable for this tool, on top of the place's. No placeholders.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.set(name, value);
        self
    }

    /// The names of all placeholders, sorted, each once: the arguments that the tool takes.
    pub fn placeholders(&self) -> Vec<&str> {
        let mut names: Vec<&str> = match &self.line {
            Line::Shell(template) => template.placeholders().collect(),
            Line::Argv(template) => template.placeholders().collect(),
        };
        names.extend(self.stdin.iter().flat_map(TextTemplate::placeholders));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Refuses settings that no program can get.
    pub fn check(&self) -> Result<(), TemplateError> {
        self.config(None)
            .check()
            .map_err(|error| TemplateError::Settings {
                reason: error.to_string(),
            })
    }

    fn config(&self, stdin: Option<String>) -> ComputeConfig {
        let mut config = ComputeConfig::new();
        config.env = self.env.clone();
        config.stdin = stdin.map(|text| Stdin::Bytes(text.into_bytes()));
        match self.timeout {
            Some(after) => config.timeout(after),
            None => config,
        }
    }

    /// The command and its configuration for one call.
    pub fn render(&self, args: &Map<String, Value>) -> Result<(CommandLine, ComputeConfig), TemplateError> {
        let line = match &self.line {
            Line::Shell(template) => CommandLine::Shell(template.render(args)?),
            Line::Argv(template) => CommandLine::Argv(template.render(args)?),
        };
        let stdin = self
            .stdin
            .as_ref()
            .map(|template| template.render(args))
            .transpose()?;
        Ok((line, self.config(stdin)))
    }
}

impl TryFrom<&str> for ToolCommand {
    type Error = TemplateError;
    fn try_from(text: &str) -> Result<Self, TemplateError> {
        Self::shell(text)
    }
}

impl TryFrom<String> for ToolCommand {
    type Error = TemplateError;
    fn try_from(text: String) -> Result<Self, TemplateError> {
        Self::shell(&text)
    }
}

impl<A: AsRef<str>, const N: usize> TryFrom<[A; N]> for ToolCommand {
    type Error = TemplateError;
    fn try_from(arguments: [A; N]) -> Result<Self, TemplateError> {
        Self::argv(arguments)
    }
}

impl<A: AsRef<str>> TryFrom<Vec<A>> for ToolCommand {
    type Error = TemplateError;
    fn try_from(arguments: Vec<A>) -> Result<Self, TemplateError> {
        Self::argv(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_reach_the_command() {
        let tool = ToolCommand::argv(["cat", "{{f}}"])
            .and_then(|tool| tool.stdin("a {{ b }} 'c'"))
            .unwrap()
            .timeout(Duration::from_secs(3))
            .env("K", "v w");
        let (line, config) = tool
            .render(json!({"b": "x'y", "f": 1}).as_object().unwrap())
            .unwrap();
        assert_eq!(line, CommandLine::from(["cat", "1"]));
        assert_eq!(
            config,
            ComputeConfig::new()
                .stdin("a x'y 'c'")
                .timeout(Duration::from_secs(3))
                .env("K", "v w")
        );
        assert_eq!(tool.placeholders(), ["b", "f"]);
        assert_eq!(tool.check(), Ok(()));
    }

    #[test]
    fn settings_that_no_program_can_get_are_refused() {
        let tool = || ToolCommand::shell("true").unwrap();
        assert_eq!(tool().env("A", "1").check(), Ok(()));
        assert!(matches!(
            tool().env("A=", "1").check(),
            Err(TemplateError::Settings { .. })
        ));
        assert!(matches!(
            tool().timeout(Duration::ZERO).check(),
            Err(TemplateError::Settings { .. })
        ));
        assert!(matches!(tool().stdin("{{"), Err(TemplateError::Part { part, .. }) if part == "stdin"));
    }
}
