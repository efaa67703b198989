//! The files of an image as the root view of a place.

use super::NAME;
use crate::hosted::{View, failed, host_view};
use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use stead_image::{Image, Lease, Platform, PullError, PullOptions, Reference, Store, StoreError};
use stead_types::{ComputeConfig, ProvisionError};

/// Whether the image of a configuration is in the store, so that nothing has to be transferred.
pub fn at_hand(name: &str) -> Result<(), ProvisionError> {
    let reference = parse(name)?;
    let found = Store::open_default().and_then(|store| store.find(&reference, &Platform::of_this_host()));
    match found {
        Ok(_) => Ok(()),
        Err(StoreError::Missing { .. }) => Err(host_view::unsupported(
            NAME,
            "image",
            "it is not in Stead's own store; `stead image pull` puts it there, and so does naming this provider",
        )),
        Err(error) => Err(refused(error)),
    }
}

/// What a place of this image is made from. What is not in the store is pulled.
pub async fn view(name: &str, config: &ComputeConfig) -> Result<View, ProvisionError> {
    let reference = parse(name)?;
    // The store blocks. When the caller goes away a pull goes on to its end, and the next finds what it brought.
    let leased = tokio::task::spawn_blocking(move || lease(&reference)).await;
    let (image, lease) = leased.map_err(|error| failed(NAME, "the image", io::Error::other(error)))??;
    let user = image.config.user.clone().filter(|user| !user.is_empty());
    let checked = ComputeConfig {
        user: config.user.clone().or(user.clone()),
        ..config.clone()
    };
    host_view::check(NAME, &checked, rustix::process::geteuid().is_root(), &[])?;
    Ok(View {
        env: env(&image),
        user,
        layers: image.layers,
        lease: Some(lease.into_descriptor().map_err(refused)?),
    })
}

fn parse(name: &str) -> Result<Reference, ProvisionError> {
    let wrong = |reason: String| ProvisionError::PullFailed {
        provider: NAME.to_owned(),
        image: name.to_owned(),
        reason,
    };
    let reference: Reference = name.parse().map_err(|error| wrong(format!("{error}")))?;
    reference.absolute().map_err(|error| wrong(error.to_string()))
}

fn lease(reference: &Reference) -> Result<(Image, Lease), ProvisionError> {
    let store = Store::open_default().map_err(refused)?;
    let platform = Platform::of_this_host();
    match store.lease(reference, &platform) {
        Err(StoreError::Missing { .. }) => {}
        other => return other.map_err(refused),
    }
    tracing::info!(provider = NAME, image = %reference, "the image is pulled");
    let pulled = store.pull(reference, &PullOptions::default(), &|_| ControlFlow::Continue(()));
    pulled.map_err(|error: PullError| ProvisionError::PullFailed {
        provider: NAME.to_owned(),
        image: reference.to_string(),
        reason: with_sources(&error),
    })?;
    store.lease(reference, &platform).map_err(refused)
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        told = format!("{told}: {next}");
        source = next.source();
    }
    told
}

fn refused(error: StoreError) -> ProvisionError {
    let reason = format!("the store of images: {error}");
    ProvisionError::Failed {
        provider: NAME.to_owned(),
        reason,
        source: Some(Box::new(error)),
    }
}

/// The environment that the image says, and of the usual one what it does not.
fn env(image: &Image) -> Vec<(OsString, OsString)> {
    let mut env = host_view::env();
    for entry in &image.config.env {
        let Some((name, value)) = entry.split_once('=') else {
            continue;
        };
        env.retain(|(other, _)| *other != *name);
        env.push((name.into(), value.into()));
    }
    env
}
