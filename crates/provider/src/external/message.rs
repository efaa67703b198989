//! The protocol's messages, as JSON. What comes from the program is untrusted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use stead_types::config::Timeout;
use stead_types::{Axes, CommandLine, ComputeConfig, InstanceStatus, Stream};

/// Characters that are kept of a text that the program sent.
const MAX_TEXT: usize = 500;

/// A line from the program.
#[derive(Debug)]
pub(super) enum Incoming {
    Answer(Answer),
    Event(Event),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) ok: Option<Value>,
    pub(super) error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refusal {
    pub(super) kind: String,
    pub(super) message: String,
    #[serde(default)]
    pub(super) key: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Event {
    Output {
        command: String,
        stream: StreamName,
        data: String,
    },
    Exit(ExitEvent),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StreamName {
    Stdout,
    Stderr,
}

impl From<StreamName> for Stream {
    fn from(name: StreamName) -> Self {
        match name {
            StreamName::Stdout => Self::Stdout,
            StreamName::Stderr => Self::Stderr,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct ExitEvent {
    pub(super) command: String,
    #[serde(default)]
    pub(super) exit_code: Option<i32>,
    #[serde(default)]
    pub(super) signal: Option<i32>,
    #[serde(default)]
    pub(super) timed_out: bool,
    #[serde(default)]
    pub(super) oom_killed: bool,
    #[serde(default)]
    pub(super) duration_ms: u64,
    #[serde(default)]
    pub(super) total_bytes: [u64; 2],
    #[serde(default)]
    pub(super) error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InstanceAnswer {
    pub(super) id: String,
    pub(super) status: InstanceStatus,
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub(super) created_at: Option<time::OffsetDateTime>,
    #[serde(default)]
    pub(super) isolation: Axes,
    #[serde(default)]
    pub(super) metadata: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProbeAnswer {
    pub(super) available: bool,
    #[serde(default)]
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) remedy: Option<String>,
}

/// Reads one line. An error says what is wrong, without the line itself.
pub(super) fn parse(line: &[u8]) -> Result<Incoming, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("a line is no JSON: {error}"))?;
    if value.get("event").is_some() {
        let event = serde_json::from_value(value).map_err(|error| format!("an event is malformed: {error}"));
        return event.map(Incoming::Event).map_err(|error| safe_text(&error));
    }
    let answer: Answer = serde_json::from_value(value)
        .map_err(|error| safe_text(&format!("an answer is malformed: {error}")))?;
    if answer.ok.is_some() == answer.error.is_some() {
        return Err("an answer has not exactly one of 'ok' and 'error'".to_owned());
    }
    Ok(Incoming::Answer(answer))
}

/// Text of the program, short and without control characters, so that it is safe in a message.
pub(super) fn safe_text(text: &str) -> String {
    text.chars()
        .take(MAX_TEXT)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

pub(super) fn decode(data: &str) -> Result<Bytes, String> {
    match STANDARD.decode(data) {
        Ok(bytes) if bytes.is_empty() => Err("an output event has no bytes".to_owned()),
        Ok(bytes) => Ok(bytes.into()),
        Err(_) => Err("an output event is no base64".to_owned()),
    }
}

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Text, or base64 of what is not UTF-8.
fn text(value: &OsStr) -> Value {
    match value.to_str() {
        Some(text) => json!(text),
        None => json!({ "base64": encode(value.as_bytes()) }),
    }
}

/// `argv` or `shell`.
pub(super) fn command(line: &CommandLine) -> (&'static str, Value) {
    match line {
        CommandLine::Shell(text) => ("shell", json!(text)),
        CommandLine::Argv(argv) => ("argv", argv.iter().map(|argument| text(argument)).collect()),
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The keys that are given. Standard input and output limits are not the program's affair.
pub(super) fn config(config: &ComputeConfig) -> Value {
    let env: Vec<Value> = config
        .env
        .iter()
        .map(|(name, value)| json!([text(name), text(value)]))
        .collect();
    let timeout = config.timeout.map(|timeout| match timeout {
        Timeout::After(after) => json!(milliseconds(after).max(1)),
        Timeout::Never => Value::Null,
    });
    let command = [
        (
            "workdir",
            config.workdir.as_ref().map(|workdir| text(workdir.as_os_str())),
        ),
        ("env", (!env.is_empty()).then(|| json!(env))),
        ("timeout_ms", timeout),
        ("grace_ms", config.grace.map(|grace| json!(milliseconds(grace)))),
        ("user", config.user.as_ref().map(|user| json!(user))),
        (
            "descendants",
            config.descendants.map(|descendants| json!(descendants)),
        ),
        ("tty", config.tty.map(|size| json!(size))),
    ];
    let given = command.into_iter().chain(instance_keys(config));
    given
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect::<Map<_, _>>()
        .into()
}

fn instance_keys(config: &ComputeConfig) -> [(&'static str, Option<Value>); 7] {
    let limited = config.resources.named().next().is_some();
    [
        ("image", config.image.as_ref().map(|image| json!(image))),
        ("resources", limited.then(|| json!(config.resources))),
        ("network", config.network.as_ref().map(|network| json!(network))),
        (
            "options",
            (!config.options.is_empty()).then(|| json!(config.options)),
        ),
        ("inherit_env", config.inherit_env.map(|inherit| json!(inherit))),
        ("mounts", (!config.mounts.is_empty()).then(|| mounts(config))),
        ("detached", config.detached.then(|| json!(true))),
    ]
}

fn mounts(config: &ComputeConfig) -> Value {
    let mount = |mount: &stead_types::Mount| {
        let (host, place) = (text(mount.host.as_os_str()), text(mount.place.as_os_str()));
        json!({ "host": host, "place": place, "read_only": mount.read_only })
    };
    config.mounts.iter().map(mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_the_protocol_are_read() {
        assert!(matches!(parse(br#"{"id":1,"ok":{}}"#), Ok(Incoming::Answer(_))));
        assert!(matches!(
            parse(br#"{"id":1,"error":{"kind":"x","message":"y"}}"#),
            Ok(Incoming::Answer(_))
        ));
        let output = br#"{"event":"output","command":"c1","stream":"stdout","data":"aGk="}"#;
        assert!(matches!(parse(output), Ok(Incoming::Event(Event::Output { .. }))));
        assert!(matches!(
            parse(br#"{"event":"exit","command":"c1","exit_code":0}"#),
            Ok(Incoming::Event(Event::Exit(_)))
        ));
    }

    #[test]
    fn other_lines_are_refused() {
        for bad in [
            "",
            "x",
            "[]",
            "{}",
            "null",
            r#"{"id":-1,"ok":{}}"#,
            r#"{"id":1}"#,
            r#"{"id":1,"ok":{},"error":{}}"#,
            r#"{"id":1,"ok":{},"more":1}"#,
            r#"{"event":"boom"}"#,
            r#"{"event":"output","command":"c1"}"#,
            r#"{"event":"output","command":"c1","stream":"stdin","data":""}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(decode("aGk=").is_ok());
        assert!(decode("").is_err() && decode("?").is_err());
    }

    #[test]
    fn text_of_the_program_is_made_safe() {
        assert_eq!(safe_text("a\x1b[31m\nb"), "a [31m b");
        assert_eq!(safe_text(&"é".repeat(9_999)).chars().count(), MAX_TEXT);
    }

    #[test]
    fn what_is_given_is_sent_and_nothing_else() {
        assert_eq!(config(&ComputeConfig::new()), json!({}));
        let given = ComputeConfig::new()
            .env("A", OsStr::from_bytes(b"\xff"))
            .timeout(Duration::from_secs(1));
        assert_eq!(
            config(&given),
            json!({"env": [["A", {"base64": "/w=="}]], "timeout_ms": 1000})
        );
        let never = ComputeConfig {
            timeout: Some(Timeout::Never),
            ..ComputeConfig::new()
        };
        assert_eq!(config(&never), json!({"timeout_ms": null}));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }
    }
}
