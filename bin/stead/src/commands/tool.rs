//! `stead tool run`.

use super::show::unprintable;
use crate::args::ToolRun;
use crate::failure::{Failure, TIMED_OUT};
use crate::output::print;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::Path;
use stead::error::{Code, Source};
use stead::{PlaceFile, ToolError};

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
    let name = tool.tool.clone();
    // There is no local implementation here, so nothing falls back to this host.
    let none = move || async move {
        Err::<String, Source>(format!("the place declares no tool {name}, and there is no other").into())
    };
    let called = place.run_tool(&tool.tool, &Value::Object(args), none).await;
    let released = place.shutdown().await;
    let output = called.map_err(failure)?;
    released?;
    if tool.format.json {
        print(json!({"output": output})).map_err(unprintable)?;
    } else {
        match std::io::stdout().write_all(output.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(unprintable(error)),
            _ => {}
        }
    }
    Ok(0)
}

fn failure(error: ToolError) -> Failure {
    let exit = match &error {
        ToolError::TimedOut { .. } => Some(TIMED_OUT),
        ToolError::Failed { exit_code, .. } => exit_code.and_then(|code| u8::try_from(code).ok()),
        _ => None,
    };
    debug_assert!(!error.code().is_empty());
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
            "Correct the file; docs/guides has an example.",
        )
        .exiting(crate::failure::USAGE)
    };
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    if is_json {
        serde_json::from_str(&text).map_err(|error| bad(error.to_string()))
    } else {
        toml::from_str(&text).map_err(|error| bad(error.to_string()))
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
    for given in &tool.args {
        let (name, value) = split(given)?;
        args.insert(name, Value::String(value));
    }
    for given in &tool.json_args {
        let (name, value) = split(given)?;
        let value = serde_json::from_str(&value).map_err(|error| {
            Failure::usage(
                format!("{name} is no JSON: {error}"),
                "Write --arg-json NAME=JSON.",
            )
        })?;
        args.insert(name, value);
    }
    Ok(args)
}
