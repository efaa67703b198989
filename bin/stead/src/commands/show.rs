//! Commands that only show something.

use crate::args::{Cli, Format};
use crate::config::{Config, KEYS};
use crate::failure::Failure;
use crate::output::{print, table};
use clap::CommandFactory;
use serde_json::{Map, Value, json};
use stead::Availability;

/// A failure to print.
pub fn unprintable(error: std::io::Error) -> Failure {
    Failure::new(
        "output_failed",
        format!("the output could not be written: {error}"),
        "Make room where it goes to.",
    )
}

/// `stead completions`.
pub fn completions(shell: clap_complete::Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "stead", &mut text);
    print(String::from_utf8_lossy(&text)).map_err(unprintable)?;
    Ok(0)
}

/// `stead man`.
pub fn man() -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut text)
        .map_err(unprintable)?;
    print(String::from_utf8_lossy(&text)).map_err(unprintable)?;
    Ok(0)
}

/// `stead providers`.
pub async fn providers(format: Format) -> Result<u8, Failure> {
    let described = stead::registry().describe().await;
    if format.json {
        let providers: Vec<Value> = described
            .iter()
            .map(|provider| match &provider.availability {
                Availability::Available => json!({"provider": provider.name, "available": true}),
                Availability::Unavailable(missing) => json!({
                    "provider": provider.name,
                    "available": false,
                    "reason": missing.reason,
                    "remedy": missing.remedy,
                    "code": missing.code,
                }),
            })
            .collect();
        print(json!({"providers": providers})).map_err(unprintable)?;
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = described
        .iter()
        .map(|provider| match &provider.availability {
            Availability::Available => vec![provider.name.clone(), "yes".to_owned(), String::new()],
            Availability::Unavailable(missing) => {
                vec![
                    provider.name.clone(),
                    "no".to_owned(),
                    format!("{} {}", missing.reason, missing.remedy),
                ]
            }
        })
        .collect();
    print(table(&["PROVIDER", "AVAILABLE", "WHY NOT"], &rows)).map_err(unprintable)?;
    Ok(0)
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
            values.insert(
                key.to_owned(),
                json!({"value": config.get(key), "origin": origin(key)}),
            );
        }
        print(Value::Object(values)).map_err(unprintable)?;
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = KEYS
        .iter()
        .map(|(key, _)| {
            vec![
                (*key).to_owned(),
                config.get(key).unwrap_or("-").to_owned(),
                origin(key),
            ]
        })
        .collect();
    print(table(&["KEY", "VALUE", "FROM"], &rows)).map_err(unprintable)?;
    Ok(0)
}
