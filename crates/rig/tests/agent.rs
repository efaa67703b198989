//! A real agent loop against a scripted model: what a place prints is what the model is told.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../examples/agent/scripted_model.rs"]
mod scripted_model;

use rig_agent::AgentBuilder;
use rig_core::message::ToolName;
use rig_core::providers::openai::OpenAIConfig;
use rig_core::tool::{DynamicTool, ToolErrorKind, ToolExecutionError, ToolOutput};
use scripted_model::{ScriptedModel, text};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use stead::{ComputeConfig, ToolCommand, ToolPlace, resolve};
use stead_testkit::{BUSYBOX_IMAGE, engine_or_skip};

fn local() -> ToolPlace {
    ToolPlace::new(resolve("local").unwrap().unwrap())
}

fn docker() -> ToolPlace {
    let config = ComputeConfig::new()
        .image(BUSYBOX_IMAGE)
        .option("image_pull_policy", "never");
    ToolPlace::new(resolve("docker").unwrap().unwrap()).config(config)
}

/// What the model was told as the result of the tool that it called, and what it was offered.
async fn told(tools: Vec<DynamicTool>, tool: &str, arguments: Value) -> (String, Value) {
    let script = ScriptedModel::start(tool, arguments).await.unwrap();
    let model = OpenAIConfig::new("no-key")
        .with_base_url(script.url())
        .client()
        .chat("scripted");
    let agent = AgentBuilder::new(model)
        .dynamic_tools(tools)
        .default_max_turns(4)
        .build();
    let answer = agent.prompt("Do it.").await.unwrap().to_string();
    let requests = script.requests();
    assert_eq!(requests.len(), 2, "one call of the tool, one answer");
    let last = requests[1]["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["role"], "tool");
    assert_eq!(
        text(&last["content"]),
        answer,
        "the script repeats what it was told"
    );
    (answer, requests[0]["tools"].clone())
}

/// A value that would be three commands if it were not one argument.
const HOSTILE: &str = "O'Brien; echo pwned $(id) `id` \"x\"\n--help";

async fn greets(place: ToolPlace) {
    let place = Arc::new(
        place
            .tool("greet", "printf 'hello %s' {{who}}; uname -n")
            .unwrap(),
    );
    let tools = stead_rig::tools(&place).unwrap();
    let (said, offered) = told(tools, "greet", json!({"who": HOSTILE})).await;
    let name = place
        .run_tool("greet", &json!({"who": HOSTILE}), || async {
            Err("it ran here".into())
        })
        .await
        .unwrap();
    assert_eq!(said, name, "the model is told what the place prints");
    assert!(said.starts_with(&format!("hello {HOSTILE}")), "{said}");
    let function = &offered[0]["function"];
    assert_eq!(function["name"], "greet");
    assert_eq!(function["parameters"]["required"], json!(["who"]));
    assert_eq!(function["parameters"]["properties"]["who"]["type"], "string");
    place.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_agent_calls_a_tool_on_this_host() {
    greets(local()).await;
}

#[tokio::test]
async fn an_agent_calls_a_tool_in_a_container() {
    if engine_or_skip("an agent calls a tool in a container") {
        greets(docker()).await;
        let place = Arc::new(
            docker()
                .tool("where", "uname -n; test -e /.dockerenv && echo inside")
                .unwrap(),
        );
        let (said, _) = told(stead_rig::tools(&place).unwrap(), "where", json!({})).await;
        assert!(said.ends_with("\ninside\n"), "{said}");
        place.shutdown().await.unwrap();
    }
}

/// A tool of the agent's own with a schema; it says that it ran.
fn own(name: &str) -> DynamicTool {
    let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    DynamicTool::new(
        ToolName::new(name).unwrap(),
        "Its own words.",
        parameters,
        |arguments| {
            Box::pin(async move {
                match arguments["n"].as_i64() {
                    Some(n) => Ok(ToolOutput::text(format!("own code, {n}"))),
                    None => Err(ToolExecutionError::rate_limited("own words of an error")),
                }
            })
        },
    )
}

#[tokio::test]
async fn a_tool_of_ones_own_runs_on_the_place_when_it_has_a_command_there() {
    let place = Arc::new(local().tool("count", "echo in the place, {{n}}").unwrap());
    let placed = stead_rig::on_place(&place, own("count"));
    let (said, offered) = told(vec![placed], "count", json!({"n": 3})).await;
    assert_eq!(said, "in the place, 3\n");
    assert_eq!(offered[0]["function"]["description"], "Its own words.");
    assert_eq!(
        offered[0]["function"]["parameters"]["properties"]["n"]["type"],
        "integer"
    );

    // The control: without a command its own code runs, unless the place is strict.
    let elsewhere = stead_rig::on_place(&place, own("other"));
    let (said, _) = told(vec![elsewhere], "other", json!({"n": 4})).await;
    assert_eq!(said, "own code, 4");
    let strict = Arc::new(local().strict(true));
    let refused = stead_rig::on_place(&strict, own("other"))
        .execute(json!({"n": 4}))
        .await;
    assert_eq!(refused.unwrap_err().code(), Some("tool_not_declared"));
    place.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_error_of_ones_own_tool_stays_as_it_is() {
    let place = Arc::new(local());
    let error = stead_rig::on_place(&place, own("other")).execute(json!({})).await;
    let error = error.unwrap_err();
    assert_eq!(error.message(), "own words of an error");
    assert_eq!(error.model_feedback(), Some("own words of an error"));
}

#[tokio::test]
async fn a_failed_call_is_an_error_that_tells_the_model_why() {
    let slow = ToolCommand::try_from("echo so far; sleep 60").unwrap();
    let place = Arc::new(
        local()
            .tool("fails", "echo the reason >&2; exit 3")
            .unwrap()
            .tool("slow", slow.timeout(Duration::from_secs(1)))
            .unwrap(),
    );
    let call = async |name: &str, arguments: Value| {
        let tool = stead_rig::tool(&place, name, "", json!({"type": "object"})).unwrap();
        tool.execute(arguments).await.unwrap_err()
    };
    let failed = call("fails", json!({})).await;
    assert_eq!(failed.code(), Some("tool_failed"));
    let told = failed.model_feedback().unwrap();
    assert!(
        told.contains("exit code 3") && told.contains("the reason"),
        "{told}"
    );

    let slow = call("slow", json!({})).await;
    assert_eq!(
        (slow.code(), slow.kind()),
        (Some("tool_timed_out"), ToolErrorKind::Timeout)
    );
    assert!(slow.model_feedback().unwrap().contains("so far"));
    assert_eq!(
        slow.retryable(),
        Some(false),
        "whether it may run again is not ours to say"
    );

    let invalid = call("fails", json!([1])).await;
    assert_eq!(invalid.kind(), ToolErrorKind::InvalidArgs);
    let unknown = call("nothing", json!({})).await;
    assert_eq!(unknown.code(), Some("tool_local_failed"));
    place.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_place_that_is_not_there_runs_nothing_on_the_host() {
    let dir = std::env::temp_dir().join(format!("stead-rig-{}", std::process::id()));
    let marker = dir.display().to_string();
    let nowhere = stead::DockerAddress::Unix("/nowhere/at/all.sock".into());
    let engine = stead::DockerProvider::at(nowhere);
    let place = Arc::new(
        ToolPlace::new(Arc::new(engine))
            .tool("touch", ["touch", marker.as_str()])
            .unwrap(),
    );
    let tools = stead_rig::tools(&place).unwrap();
    let (said, _) = told(tools, "touch", json!({})).await;
    assert!(said.contains("nothing was run on the host"), "{said}");
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_name_that_no_agent_can_call_is_refused() {
    let place = Arc::new(local());
    assert!(stead_rig::tool(&place, "", "", json!({})).is_err());
}
