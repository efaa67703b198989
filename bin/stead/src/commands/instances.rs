//! Instances of this host: list, prune, remove.

use super::show::unprintable;
use crate::args::{Format, Rm};
use crate::failure::Failure;
use crate::output::{print, table};
use serde_json::{Value, json};
use std::sync::Arc;
use stead::{Availability, ComputeInstance, InstanceId, Missing, Provider};

/// All providers, and which of them cannot be asked: what those have is not known, and never none.
struct Asked {
    usable: Vec<Arc<dyn Provider>>,
    unknown: Vec<(String, Missing)>,
}

impl Asked {
    async fn all() -> Result<Self, Failure> {
        let (mut usable, mut unknown) = (Vec::new(), Vec::new());
        for name in stead::registry().list() {
            let Some(provider) = stead::resolve(name.as_str())? else {
                continue;
            };
            match provider.probe().await {
                Availability::Available => usable.push(provider),
                Availability::Unavailable(missing) => unknown.push((name, missing)),
            }
        }
        Ok(Self { usable, unknown })
    }

    /// For people; documents have [`Self::unknown`].
    fn note(&self) {
        for (name, missing) in &self.unknown {
            eprintln!("note: the instances of {name} are not known: {}", missing.reason);
        }
    }

    fn unknown(&self) -> Vec<Value> {
        self.unknown
            .iter()
            .map(|(name, missing)| json!({"provider": name, "code": missing.code, "reason": missing.reason}))
            .collect()
    }
}

/// `stead ps`.
pub async fn ps(format: Format) -> Result<u8, Failure> {
    let mut instances: Vec<ComputeInstance> = Vec::new();
    let asked = Asked::all().await?;
    asked.note();
    for provider in &asked.usable {
        instances.extend(provider.list_instances().await?);
    }
    instances.sort_by(|a, b| b.id.cmp(&a.id));
    if format.json {
        print(json!({"instances": instances, "unknown": asked.unknown()})).map_err(unprintable)?;
        return Ok(0);
    }
    let text = |value: Option<&serde_json::Value>| match value {
        None | Some(serde_json::Value::Null) => "-".to_owned(),
        Some(value) => value.to_string(),
    };
    let rows: Vec<Vec<String>> = instances
        .iter()
        .map(|instance| {
            vec![
                instance.id.to_string(),
                instance.provider.clone(),
                json!(instance.status).as_str().unwrap_or_default().to_owned(),
                created(instance),
                text(instance.metadata.get("owner_pid")),
                text(instance.metadata.get("detached")),
            ]
        })
        .collect();
    print(table(
        &["ID", "PROVIDER", "STATUS", "CREATED", "OWNER", "DETACHED"],
        &rows,
    ))
    .map_err(unprintable)?;
    Ok(0)
}

/// Whole seconds: for people the rest is noise.
fn created(instance: &ComputeInstance) -> String {
    let document = json!(instance);
    let text = document["created_at"].as_str().unwrap_or_default();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text.to_owned(),
    }
}

/// `stead prune`.
pub async fn prune(format: Format) -> Result<u8, Failure> {
    let mut removed: Vec<InstanceId> = Vec::new();
    let asked = Asked::all().await?;
    asked.note();
    for provider in &asked.usable {
        removed.extend(provider.prune().await?);
    }
    if format.json {
        print(json!({"removed": removed, "unknown": asked.unknown()})).map_err(unprintable)?;
        return Ok(0);
    }
    for id in removed {
        print(id).map_err(unprintable)?;
    }
    Ok(0)
}

/// `stead rm`.
pub async fn rm(rm: Rm) -> Result<u8, Failure> {
    let id = InstanceId::new(rm.id);
    let asked = Asked::all().await?;
    for provider in &asked.usable {
        if provider.status(&id).await?.is_some() {
            provider.shutdown(&id).await?;
            if rm.format.json {
                print(json!({"removed": [id]})).map_err(unprintable)?;
            }
            return Ok(0);
        }
    }
    // It may be one of those that could not be asked.
    if let Some((name, missing)) = asked.unknown.first() {
        let message = format!(
            "whether there is an instance {id} is not known: {name}: {}",
            missing.reason
        );
        return Err(Failure::new(missing.code, message, missing.remedy.clone()));
    }
    Err(Failure::new(
        "instance_not_found",
        format!("there is no instance {id}"),
        "`stead ps` lists what there is.",
    ))
}
