//! Instances of this host: list, prune, remove.

use super::show::unprintable;
use crate::args::{Format, Rm};
use crate::failure::Failure;
use crate::output::{print, table};
use serde_json::json;
use std::sync::Arc;
use stead::{Availability, ComputeInstance, InstanceId, Provider};

/// The providers that can be used here; the others are told on standard error, since what they have is
/// not known.
async fn usable() -> Result<Vec<Arc<dyn Provider>>, Failure> {
    let mut usable = Vec::new();
    for name in stead::registry().list() {
        let Some(provider) = stead::resolve(name.as_str())? else {
            continue;
        };
        match provider.probe().await {
            Availability::Available => usable.push(provider),
            Availability::Unavailable(missing) => {
                eprintln!("note: the instances of {name} are not known: {}", missing.reason);
            }
        }
    }
    Ok(usable)
}

/// `stead ps`.
pub async fn ps(format: Format) -> Result<u8, Failure> {
    let mut instances: Vec<ComputeInstance> = Vec::new();
    for provider in usable().await? {
        instances.extend(provider.list_instances().await?);
    }
    instances.sort_by(|a, b| b.id.cmp(&a.id));
    if format.json {
        print(json!({"instances": instances})).map_err(unprintable)?;
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
                instance.created_at.to_string(),
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

/// `stead prune`.
pub async fn prune(format: Format) -> Result<u8, Failure> {
    let mut removed: Vec<InstanceId> = Vec::new();
    for provider in usable().await? {
        removed.extend(provider.prune().await?);
    }
    if format.json {
        print(json!({"removed": removed})).map_err(unprintable)?;
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
    for provider in usable().await? {
        if provider.status(&id).await?.is_some() {
            provider.shutdown(&id).await?;
            if rm.format.json {
                print(json!({"removed": [id]})).map_err(unprintable)?;
            }
            return Ok(0);
        }
    }
    Err(Failure::new(
        "instance_not_found",
        format!("there is no instance {id}"),
        "`stead ps` lists what there is.",
    ))
}
