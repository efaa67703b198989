//! `stead doctor`: what isolation is observed, by an attack that is tried in a real place.

use super::show::unprintable;
use crate::args::Doctor;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{print, table};
use serde_json::{Map, Value, json};
use stead::doctor::{AxisVerdict, Outcome};
use stead::error::Code;
use stead::{Availability, ComputeConfig, Missing};

/// What is told of one provider.
struct Examined {
    provider: String,
    missing: Option<Missing>,
    /// Why it was not observed although it is there.
    not_run: Option<(String, String)>,
    axes: Vec<AxisVerdict>,
}

/// Examines the named provider, or all.
pub async fn doctor(options: Doctor, config: &Config) -> Result<u8, Failure> {
    let names = match &options.provider {
        Some(name) => vec![name.clone()],
        None => stead::registry().list(),
    };
    let doctor = stead::doctor::Doctor::new().await?;
    let image = options.image.as_deref().or(config.get("image"));
    let mut all = Vec::new();
    for name in names {
        all.push(examine(&doctor, &name, image).await?);
    }
    if options.format.json {
        let providers: Vec<Value> = all.iter().map(document).collect();
        print(json!({"providers": providers})).map_err(unprintable)?;
    } else {
        for examined in &all {
            print(shown(examined)).map_err(unprintable)?;
        }
    }
    Ok(0)
}

async fn examine(
    doctor: &stead::doctor::Doctor,
    name: &str,
    image: Option<&str>,
) -> Result<Examined, Failure> {
    let Some(provider) = stead::resolve(name)? else {
        return Err(Failure::usage("no provider is named", "Give --provider a name."));
    };
    let mut examined = Examined {
        provider: provider.name().to_owned(),
        missing: None,
        not_run: None,
        axes: Vec::new(),
    };
    if let Availability::Unavailable(missing) = provider.probe().await {
        examined.missing = Some(missing);
        return Ok(examined);
    }
    let mut config = ComputeConfig::new();
    config.image = image.filter(|_| provider.name() == "docker").map(str::to_owned);
    match doctor.examine(&*provider, config).await {
        Ok(axes) => examined.axes = axes,
        Err(error) => examined.not_run = Some((error.to_string(), error.remedy())),
    }
    Ok(examined)
}

fn document(examined: &Examined) -> Value {
    let mut document = Map::new();
    document.insert("provider".to_owned(), examined.provider.clone().into());
    document.insert("available".to_owned(), examined.missing.is_none().into());
    let reason = match (&examined.missing, &examined.not_run) {
        (Some(missing), _) => Some((missing.reason.clone(), missing.remedy.clone())),
        (None, not_run) => not_run.clone(),
    };
    if let Some((reason, remedy)) = reason {
        document.insert("reason".to_owned(), reason.into());
        document.insert("remedy".to_owned(), remedy.into());
    }
    let axes: Map<String, Value> = stead::Axis::ALL
        .into_iter()
        .map(|axis| {
            let found = examined.axes.iter().find(|verdict| verdict.axis == axis);
            let held = found.and_then(|verdict| verdict.held);
            let evidence = found
                .map(|verdict| json!(verdict.evidence))
                .unwrap_or_else(|| json!([]));
            (
                axis.name().to_owned(),
                json!({"held": held, "evidence": evidence}),
            )
        })
        .collect();
    document.insert("axes".to_owned(), axes.into());
    Value::Object(document)
}

fn shown(examined: &Examined) -> String {
    let name = &examined.provider;
    if let Some(missing) = &examined.missing {
        return format!("{name}: not available: {} {}\n", missing.reason, missing.remedy);
    }
    if let Some((reason, _)) = &examined.not_run {
        return format!("{name}: not known: {reason}\n");
    }
    let mut rows = Vec::new();
    for verdict in &examined.axes {
        let held = match verdict.held {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "not known",
        };
        rows.push(vec![
            verdict.axis.name().to_owned(),
            held.to_owned(),
            String::new(),
        ]);
        for attempt in &verdict.evidence {
            let outcome = match (attempt.outcome, attempt.control) {
                (Outcome::Reached, _) => "REACHED",
                (Outcome::Refused, Outcome::Reached) => "refused",
                (Outcome::Refused, _) => "(refused)",
                (Outcome::Unknown, _) => "not tried",
            };
            rows.push(vec![
                format!("  {}", attempt.attempt),
                outcome.to_owned(),
                attempt.seen.clone(),
            ]);
        }
    }
    format!(
        "{name}\n{}\n(refused): it is refused on this host too, so it says nothing.\n",
        table(&["AXIS, ATTEMPT", "FOUND", "SEEN"], &rows)
    )
}
