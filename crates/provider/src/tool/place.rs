//! A place for tool calls.

use super::command::ToolCommand;
use super::error::{OutputTail, ToolError};
use super::slot::{PROBE_LIMIT, Slot, StartError};
use super::template::TemplateError;
use crate::Provider;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use stead_types::error::Source;
use stead_types::{
    ComputeConfig, ExecResult, ExecuteError, InheritEnv, InstanceId, InstanceStatus, ShutdownError,
};

/// What a place tells besides its results.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolEvent {
    /// A tool without a command on the place ran as its local implementation, on the host. Once for each
    /// tool and place.
    RanOnHost {
        /// The tool.
        tool: String,
        /// The place's provider.
        place: String,
    },
}

/// What a tool call gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// Standard output of the command, or the text of the local implementation.
    pub stdout: Vec<u8>,
    /// Standard error of the command, which exited with 0.
    pub stderr: Vec<u8>,
    /// All bytes that were printed to standard output; more than `stdout` has when it was cut.
    pub stdout_total_bytes: u64,
    /// Whether the local implementation ran, on the host.
    pub ran_on_host: bool,
}

impl ToolOutput {
    /// Standard output as text, invalid bytes replaced. When it was cut, a last line says so.
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.stdout).into_owned();
        match self.stdout.len() as u64 {
            kept if kept < self.stdout_total_bytes => {
                format!("{text}\n[the first {kept} of {} bytes]", self.stdout_total_bytes)
            }
            _ => text,
        }
    }
}

type Listener = Arc<dyn Fn(&ToolEvent) + Send + Sync>;

/// A provider plus a command for each tool. One instance, brought up by the first call and used by all;
/// dropping the place releases it.
///
/// A provider that runs on the host gives these commands the minimal environment unless the
/// configuration says otherwise.
pub struct ToolPlace {
    provider: Arc<dyn Provider>,
    config: ComputeConfig,
    strict: bool,
    tools: RwLock<BTreeMap<String, ToolCommand>>,
    warned: Mutex<BTreeSet<String>>,
    listener: Option<Listener>,
    slot: Arc<Slot>,
}

impl fmt::Debug for ToolPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolPlace")
            .field("provider", &self.provider.name())
            .finish_non_exhaustive()
    }
}

impl Drop for ToolPlace {
    fn drop(&mut self) {
        self.slot.close();
    }
}

impl ToolPlace {
    /// A place without commands and with the provider's defaults. Nothing is brought up yet.
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self {
            slot: Slot::new(Arc::clone(&provider)),
            provider,
            config: ComputeConfig::new(),
            strict: false,
            tools: RwLock::default(),
            warned: Mutex::default(),
            listener: None,
        }
    }

    /// Sets the configuration of the instance. Default: the provider's defaults.
    pub fn config(mut self, config: ComputeConfig) -> Self {
        self.config = config;
        self
    }

    /// Refuses tools that have no command, instead of running their local implementation. Default: no.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Gets every event, besides the log. Called in the task of the tool call; must not block.
    pub fn on_event(mut self, listener: impl Fn(&ToolEvent) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Declares a tool's command: shell text, a list of arguments, or a [`ToolCommand`].
    pub fn tool<C>(self, tool: &str, command: C) -> Result<Self, ToolError>
    where
        C: TryInto<ToolCommand>,
        C::Error: Into<TemplateError>,
    {
        self.set_command(tool, command)?;
        Ok(self)
    }

    /// Declares a tool's command, or replaces it. Calls that already run keep the old one.
    pub fn set_command<C>(&self, tool: &str, command: C) -> Result<(), ToolError>
    where
        C: TryInto<ToolCommand>,
        C::Error: Into<TemplateError>,
    {
        let bad = |source| ToolError::Template {
            tool: tool.to_owned(),
            source,
        };
        let command: ToolCommand = command.try_into().map_err(|error| bad(error.into()))?;
        command.check().map_err(bad)?;
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        tools.insert(tool.to_owned(), command);
        Ok(())
    }

    /// The provider's name.
    pub fn name(&self) -> &str {
        self.provider.name()
    }

    /// The provider.
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    /// The tools that have a command, sorted, with the arguments that each takes.
    pub fn tools(&self) -> Vec<(String, Vec<String>)> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        let names = |command: &ToolCommand| command.placeholders().into_iter().map(str::to_owned).collect();
        tools
            .iter()
            .map(|(tool, command)| (tool.clone(), names(command)))
            .collect()
    }

    /// Runs a tool and returns its output as text; see [`Self::call`].
    pub async fn run_tool<F, Fut>(&self, tool: &str, args: &Value, local: F) -> Result<String, ToolError>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<String, Source>>,
    {
        self.call(tool, args, local).await.map(|output| output.text())
    }

    /// Runs a tool. With a command it runs in the place; without one `local` runs, on the host, with a
    /// warning, unless the place is strict. `args` is an object, or null for none.
    ///
    /// Another exit than 0, a timeout and a place that is not there are errors; in none of these cases
    /// `local` runs.
    pub async fn call<F, Fut>(&self, tool: &str, args: &Value, local: F) -> Result<ToolOutput, ToolError>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<String, Source>>,
    {
        let command = self
            .tools
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(tool)
            .cloned();
        match command {
            Some(command) => self.run_in_place(tool, &command, args).await,
            None if self.strict => Err(ToolError::NotDeclared {
                tool: tool.to_owned(),
                place: self.name().to_owned(),
            }),
            None => {
                self.warn_once(tool);
                let text = local().await.map_err(|source| ToolError::Local {
                    tool: tool.to_owned(),
                    source,
                })?;
                let stdout_total_bytes = text.len() as u64;
                Ok(ToolOutput {
                    stdout: text.into(),
                    stderr: Vec::new(),
                    stdout_total_bytes,
                    ran_on_host: true,
                })
            }
        }
    }

    fn warn_once(&self, tool: &str) {
        let fresh = self
            .warned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(tool.to_owned());
        if !fresh {
            return;
        }
        let place = self.name().to_owned();
        tracing::warn!(
            tool,
            place,
            "tool has no command on its place and runs on the host"
        );
        if let Some(listener) = &self.listener {
            listener(&ToolEvent::RanOnHost {
                tool: tool.to_owned(),
                place,
            });
        }
    }

    async fn run_in_place(
        &self,
        tool: &str,
        command: &ToolCommand,
        args: &Value,
    ) -> Result<ToolOutput, ToolError> {
        let none = Map::new();
        let args = match args {
            Value::Object(args) => args,
            Value::Null => &none,
            _ => return Err(arguments(tool, "they are not an object".to_owned())),
        };
        let (line, config) = command
            .render(args)
            .map_err(|error| arguments(tool, error.to_string()))?;
        let id = self
            .slot
            .get(&self.instance_config())
            .await
            .map_err(|error| self.not_started(tool, error))?;
        match self.provider.execute(&id, line, config).await {
            Ok(result) => self.outcome(tool, result),
            Err(error) => Err(self.no_result(tool, &id, error).await),
        }
    }

    fn instance_config(&self) -> ComputeConfig {
        let mut config = self.config.clone();
        if self.provider.inherits_host_env() {
            config.inherit_env.get_or_insert(InheritEnv::Minimal);
        }
        config
    }

    fn not_started(&self, tool: &str, error: StartError) -> ToolError {
        let (tool, place) = (tool.to_owned(), self.name().to_owned());
        match error {
            StartError::Unavailable(missing) => ToolError::Unavailable { tool, place, missing },
            StartError::Provision(source) => ToolError::Provision { tool, place, source },
            StartError::Aborted => ToolError::ProvisionAborted { tool, place },
        }
    }

    async fn no_result(&self, tool: &str, id: &InstanceId, source: ExecuteError) -> ToolError {
        let died = match &source {
            ExecuteError::NoInstance { .. } => true,
            // One command can be lost while the instance and its other commands live.
            ExecuteError::Lost { .. } => {
                let status = tokio::time::timeout(PROBE_LIMIT, self.provider.status(id)).await;
                !matches!(status, Ok(Ok(Some(instance))) if instance.status == InstanceStatus::Running)
            }
            _ => false,
        };
        let (tool, place, source) = (tool.to_owned(), self.name().to_owned(), Box::new(source));
        if !died {
            return ToolError::Execute { tool, place, source };
        }
        self.slot.died(id);
        ToolError::PlaceDied { tool, place, source }
    }

    fn outcome(&self, tool: &str, result: ExecResult) -> Result<ToolOutput, ToolError> {
        let (tool, place) = (tool.to_owned(), self.name().to_owned());
        if result.success() {
            return Ok(ToolOutput {
                stdout: result.stdout,
                stderr: result.stderr,
                stdout_total_bytes: result.stdout_total_bytes,
                ran_on_host: false,
            });
        }
        let stdout = OutputTail::of(&result.stdout, result.stdout_total_bytes);
        let stderr = OutputTail::of(&result.stderr, result.stderr_total_bytes);
        if result.timed_out {
            return Err(ToolError::TimedOut {
                tool,
                place,
                after: result.duration,
                stdout,
                stderr,
            });
        }
        let output = if stderr.is_empty() { stdout } else { stderr };
        Err(ToolError::Failed {
            tool,
            place,
            exit_code: result.exit_code,
            signal: result.signal,
            output,
        })
    }

    /// Releases the instance and confirms it. After a failure it can be called again; a later tool call
    /// brings up a new instance.
    pub async fn shutdown(&self) -> Result<(), ShutdownError> {
        self.slot.shutdown().await
    }
}

fn arguments(tool: &str, reason: String) -> ToolError {
    ToolError::Arguments {
        tool: tool.to_owned(),
        reason,
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
