//! Commands that only show something.

use crate::args::Format;
use crate::config::{Config, KEYS};
use crate::failure::Failure;
use crate::output::{print, table};
use serde_json::{Map, Value, json};
use stead::{Availability, Axes, Axis, ProviderDescription};

/// A failure to print.
pub fn unprintable(error: std::io::Error) -> Failure {
    Failure::new(
        "output_failed",
        format!("the output could not be written: {error}"),
        "Make room where it goes to.",
    )
}

/// `stead providers`.
pub async fn providers(format: Format) -> Result<u8, Failure> {
    let described = stead::registry().describe().await;
    if format.json {
        let providers: Vec<Value> = described.iter().map(document).collect();
        print(json!({"providers": providers})).map_err(unprintable)?;
        return Ok(0);
    }
    print(providers_table(&described)).map_err(unprintable)?;
    Ok(0)
}

fn document(provider: &ProviderDescription) -> Value {
    let mut document = json!({
        "provider": provider.name,
        "available": provider.availability == Availability::Available,
        "axes": provider.axes,
    });
    if let Availability::Unavailable(missing) = &provider.availability {
        document["reason"] = missing.reason.clone().into();
        document["remedy"] = missing.remedy.clone().into();
        document["code"] = missing.code.into();
    }
    document
}

fn providers_table(described: &[ProviderDescription]) -> String {
    let row = |provider: &ProviderDescription| {
        let (available, why_not) = match &provider.availability {
            Availability::Available => ("yes", String::new()),
            Availability::Unavailable(missing) => {
                let reason = missing.reason.trim_end_matches('.');
                ("no", format!("{reason}. {} [{}]", missing.remedy, missing.code))
            }
        };
        vec![
            provider.name.clone(),
            available.to_owned(),
            walls(&provider.axes),
            why_not,
        ]
    };
    let rows: Vec<Vec<String>> = described.iter().map(row).collect();
    table(&["PROVIDER", "AVAILABLE", "ISOLATION", "WHY NOT"], &rows)
}

/// The axes that hold, in one word each. What nobody looked at is not told as missing.
fn walls(axes: &Axes) -> String {
    let word = |axis: Axis| match axis {
        Axis::ProcessContained => "processes",
        Axis::HostFilesystemRestricted => "files",
        Axis::PrivilegeEscalationBlocked => "privileges",
        Axis::SyscallsRestricted => "syscalls",
        Axis::NetworkRestricted => "network",
    };
    let held: Vec<&str> = Axis::ALL
        .into_iter()
        .filter(|axis| axes.holds(*axis))
        .map(word)
        .collect();
    match held.is_empty() {
        false => held.join(","),
        true if *axes == Axes::NONE => "none".to_owned(),
        true if *axes == Axes::UNKNOWN => "unknown".to_owned(),
        true => "none seen".to_owned(),
    }
}

/// `stead config show`.
pub fn config(config: &Config, format: Format) -> Result<u8, Failure> {
    let origin = |key| {
        config
            .origin(key)
            .map_or("default".to_owned(), ToString::to_string)
    };
    if format.json {
        let mut values = Map::new();
        for (key, _) in KEYS {
            let value = json!({"value": config.effective(key), "origin": origin(key)});
            values.insert(key.to_owned(), value);
        }
        print(Value::Object(values)).map_err(unprintable)?;
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = KEYS
        .iter()
        .map(|(key, _)| vec![(*key).to_owned(), config.effective_text(key), origin(key)])
        .collect();
    print(table(&["KEY", "VALUE", "FROM"], &rows)).map_err(unprintable)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_what_isolates_and_parts_reason_and_remedy() {
        let mut some = Axes::UNKNOWN;
        some.set(Axis::ProcessContained, Some(true));
        some.set(Axis::SyscallsRestricted, Some(true));
        let mut weakened = Axes::UNKNOWN;
        weakened.set(Axis::NetworkRestricted, Some(false));
        let provider = |name: &str, availability, axes| ProviderDescription {
            name: name.to_owned(),
            availability,
            axes,
        };
        let missing = Availability::missing("probe_failed", "it is broken", "Mend it.");
        let described = [
            provider("a", Availability::Available, Axes::NONE),
            provider("b", Availability::Available, Axes::UNKNOWN),
            provider("c", Availability::Available, some),
            provider("d", Availability::Available, weakened),
            provider("e", missing, Axes::NONE),
        ];
        let lines = [
            "PROVIDER  AVAILABLE  ISOLATION           WHY NOT",
            "a         yes        none",
            "b         yes        unknown",
            "c         yes        processes,syscalls",
            "d         yes        none seen",
            "e         no         none                it is broken. Mend it. [probe_failed]",
        ];
        assert_eq!(providers_table(&described), lines.join("\n"));
        assert_eq!(document(&described[2])["axes"]["process_contained"], true);
        assert_eq!(document(&described[2])["axes"]["network_restricted"], Value::Null);
        assert_eq!(document(&described[4])["code"], "probe_failed");
    }
}
