//! An agent whose tool runs in a place. The model is a script that speaks the protocol of OpenAI, so that no key
//! is needed; with a real model only `model()` changes.
//!
//! ```sh
//! cargo run -p stead-rig --example agent                      # in a container of python:3.11-slim
//! cargo run -p stead-rig --example agent -- docker IMAGE      # of another image
//! cargo run -p stead-rig --example agent -- local             # on this host, by explicit choice
//! ```

mod scripted_model;

use rig_agent::AgentBuilder;
use rig_core::providers::openai::OpenAIConfig;
use scripted_model::ScriptedModel;
use std::sync::Arc;
use stead::{ComputeConfig, ToolPlace, resolve};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "docker".to_owned());
    let provider = resolve(&name)?.ok_or_else(|| anyhow::anyhow!("no provider was named"))?;
    let config = match arguments.next() {
        Some(image) => ComputeConfig::new().image(&image),
        None => ComputeConfig::new(),
    };
    let place = Arc::new(
        ToolPlace::new(provider)
            .config(config)
            .strict(true)
            .tool("greet", "echo hello {{who}}, from $(uname -n)")?,
    );

    let script = ScriptedModel::start("greet", serde_json::json!({"who": "world; echo pwned"})).await?;
    let model = OpenAIConfig::new("no-key")
        .with_base_url(script.url())
        .client()
        .chat("scripted");
    let agent = AgentBuilder::new(model)
        .preamble("Use the tool greet.")
        .dynamic_tools(stead_rig::tools(&place)?)
        .default_max_turns(4)
        .build();
    let answer = agent.prompt("Greet the world.").await?;
    println!("{answer}");
    place.shutdown().await?;
    Ok(())
}
