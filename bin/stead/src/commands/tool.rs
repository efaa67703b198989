//! `stead tool run`.

use super::show::unprintable;
use super::signals::Ending;
use crate::args::ToolRun;
use crate::failure::{Failure, TIMED_OUT, USAGE};
use crate::output::{self, print};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::Path;
use stead::error::Source;
use stead::tool::ToolOutput;
use stead::{PlaceFile, ToolError, ToolPlace};

/// Calls one tool and prints its standard output.
pub async fn run(tool: ToolRun) -> Result<u8, Failure> {
    let file = read(&tool.file)?;
    let args = arguments(&tool)?;
    let Some(provider) = stead::resolve(file.provider.as_str())? else {
        return Err(Failure::usage(
            "the place names no provider",
            "Set `provider` in the file.",
        ));
    };
    let place = file.place(provider)?;
    declared(&place, &tool.tool, &args)?;
    let value = Value::Object(args);
    let mut ending =
        Ending::listen().map_err(|error| Failure::new("signals_failed", error.to_string(), "Try again."))?;
    // The tool was just seen to have a command, so nothing else can run.
    let none = || async { Err::<String, Source>("the place has no command for it any more".into()) };
    let called = tokio::select! {
        called = place.call(&tool.tool, &value, none) => Ok(called),
        signal = ending.next() => Err(signal),
    };
    let released = place.shutdown().await;
    let called = match called {
        Ok(called) => called,
        Err(signal) => {
            released?;
            return Ok(128 + signal);
        }
    };
    let output = match called {
        Ok(output) => output,
        Err(error) => return told(error, tool.format.json),
    };
    released?;
    if tool.format.json {
        print(document(&output)).map_err(unprintable)?;
        return Ok(0);
    }
    if (output.stdout.len() as u64) < output.stdout_total_bytes {
        eprintln!(
            "note: the first {} of {} bytes are printed",
            output.stdout.len(),
            output.stdout_total_bytes
        );
    }
    match std::io::stdout().write_all(&output.stdout) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(unprintable(error)),
        _ => Ok(0),
    }
}

/// What of a call can be seen to be wrong before anything starts.
fn declared(place: &ToolPlace, name: &str, args: &Map<String, Value>) -> Result<(), Failure> {
    let tools = place.tools();
    let names = || {
        tools
            .iter()
            .map(|(tool, _)| tool.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let Some((_, placeholders)) = tools.iter().find(|(tool, _)| tool == name) else {
        let message = match tools.is_empty() {
            true => format!("the place declares no tool, and so not {name}"),
            false => format!("the place declares no tool {name}; it has {}", names()),
        };
        let remedy = "Name a tool that the file declares; nothing was run.";
        return Err(Failure::new("tool_not_declared", message, remedy).exiting(USAGE));
    };
    for given in args.keys().filter(|given| !placeholders.contains(given)) {
        eprintln!("note: {name} has no placeholder {given}; the argument is not used");
    }
    Ok(())
}

/// The document of `--json`. Bytes that are no text are there too.
fn document(output: &ToolOutput) -> Value {
    let mut document = Map::new();
    output::text_or_bytes(&mut document, "output", &output.stdout);
    output::text_or_bytes(&mut document, "stderr", &output.stderr);
    let truncated = (output.stdout.len() as u64) < output.stdout_total_bytes;
    document.insert("output_total_bytes".to_owned(), output.stdout_total_bytes.into());
    document.insert("output_truncated".to_owned(), truncated.into());
    Value::Object(document)
}

/// A call that failed. Its own exit code is in the envelope's details too.
fn told(error: ToolError, json: bool) -> Result<u8, Failure> {
    let details = match (&error, json) {
        (
            ToolError::Failed {
                exit_code,
                signal,
                output,
                ..
            },
            true,
        ) => {
            json!({"exit_code": exit_code, "signal": signal, "output": output.text})
        }
        (ToolError::TimedOut { stdout, stderr, .. }, true) => {
            json!({"timed_out": true, "stdout": stdout.text, "stderr": stderr.text})
        }
        _ => return Err(failure(error)),
    };
    let failure = failure(error);
    let exit = failure.exit;
    let mut envelope = failure.envelope();
    if let (Some(known), Some(more)) = (envelope["error"]["details"].as_object_mut(), details.as_object()) {
        known.extend(more.clone());
    }
    print(envelope).map_err(unprintable)?;
    Ok(exit)
}

fn failure(error: ToolError) -> Failure {
    let exit = match &error {
        ToolError::TimedOut { .. } => Some(TIMED_OUT),
        ToolError::Failed { exit_code, .. } => exit_code.and_then(|code| u8::try_from(code).ok()),
        _ => None,
    };
    let failure = Failure::from(error);
    match exit {
        Some(exit) => failure.exiting(exit),
        None => failure,
    }
}

fn read(path: &Path) -> Result<PlaceFile, Failure> {
    let bad = |reason: String| {
        let message = format!("{} declares no place: {reason}", path.display());
        Failure::new(
            "place_file_invalid",
            message,
            "Correct the file; docs/guides/place-files.md has an example.",
        )
        .exiting(crate::failure::USAGE)
    };
    let text = read_limited(path).map_err(|error| bad(error.to_string()))?;
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    if is_json {
        serde_json::from_str(&text).map_err(|error| bad(error.to_string()))
    } else {
        toml::from_str(&text).map_err(|error| bad(error.to_string()))
    }
}

/// Bytes of a place file. More is no place but a mistake, and /dev/zero has no end.
const MAX_FILE: u64 = 4 << 20;

fn read_limited(path: &Path) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind, Read};
    // Looked at before it is opened: a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    let file = std::fs::File::open(path)?;
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_FILE {
        true => Err(Error::new(
            ErrorKind::FileTooLarge,
            format!("it has more than {MAX_FILE} bytes"),
        )),
        false => Ok(text),
    }
}

fn arguments(tool: &ToolRun) -> Result<Map<String, Value>, Failure> {
    let split = |given: &str| match given.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Failure::usage(
            format!("{given:?} is no NAME=VALUE"),
            "Write --arg NAME=VALUE.",
        )),
    };
    let mut args = Map::new();
    let mut insert = |name: String, value: Value| match args.insert(name.clone(), value) {
        None => Ok(()),
        Some(_) => Err(Failure::usage(
            format!("the argument {name} is given twice"),
            "Give each argument once.",
        )),
    };
    for given in &tool.args {
        let (name, value) = split(given)?;
        insert(name, Value::String(value))?;
    }
    for given in &tool.json_args {
        let (name, value) = split(given)?;
        let value = serde_json::from_str(&value).map_err(|error| {
            Failure::usage(
                format!("{name} is no JSON: {error}"),
                "Write --arg-json NAME=JSON.",
            )
        })?;
        insert(name, value)?;
    }
    Ok(args)
}
