//! Where images come from.

pub(crate) mod archive;
pub(crate) mod challenge;
pub(crate) mod daemon;
pub(crate) mod http;
pub(crate) mod layout;
pub(crate) mod registry;

use crate::digest::Digest;
use crate::error::PullError;
use crate::limits::Limits;
use crate::manifest::{self, Configuration, Descriptor, Document};
use crate::platform::Platform;
use std::io::Read;

/// An index in an index is rare, one in that has not been seen.
const MAX_INDEXES: usize = 3;

/// An image that was found, with everything of it that is small.
pub(crate) struct Found {
    pub digest: Digest,
    /// What is kept beside the configuration.
    pub manifest: Option<Vec<u8>>,
    pub config: Vec<u8>,
    pub configuration: Configuration,
    /// As many as the configuration has diff ids, the lowest first.
    pub layers: Vec<Layer>,
}

/// A layer as it is transferred.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    /// `None` where only the digest of its content is known.
    pub digest: Option<Digest>,
    pub size: u64,
    /// Where in an archive it begins.
    pub offset: u64,
}

/// A reader of a layer, from a byte on.
pub(crate) struct Opened {
    /// Where it begins: what was asked for, or 0 where the source cannot do that.
    pub from: u64,
    pub reader: Box<dyn Read + Send>,
}

/// Somewhere that images come from.
pub(crate) trait Source: Sync {
    /// Finds the image.
    fn find(&self, wanted: &Platform, limits: &Limits) -> Result<Found, PullError>;
    /// Opens a layer.
    fn open(&self, layer: &Layer, from: u64) -> Result<Opened, PullError>;
    /// Whether transferring is worth to be kept and taken up again.
    fn is_remote(&self) -> bool;
}

/// Something that has documents under names and digests.
pub(crate) trait Documents {
    /// For messages.
    fn image(&self) -> String;
    /// The document that the reference is about.
    fn top(&self, limits: &Limits) -> Result<Vec<u8>, PullError>;
    /// Of an index, the one that the reference is about, if that says more than the platform.
    fn named<'a>(&self, listed: &'a [manifest::Listed]) -> Result<Option<&'a manifest::Listed>, PullError>;
    /// A document of this size, which the caller verifies.
    fn manifest(&self, descriptor: &Descriptor) -> Result<Vec<u8>, PullError>;
    /// A blob of this size, which the caller verifies.
    fn blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, PullError>;
}

/// From a name to an image, through whatever indexes there are.
pub(crate) fn find_in(from: &impl Documents, wanted: &Platform, limits: &Limits) -> Result<Found, PullError> {
    let bad = |reason| PullError::Manifest {
        image: from.image(),
        reason,
    };
    let mut bytes = from.top(limits)?;
    for depth in 0..=MAX_INDEXES {
        match manifest::read(&bytes, limits.layers).map_err(bad)? {
            Document::Manifest { config, layers } => {
                return complete(from, wanted, limits, bytes, (config, layers));
            }
            Document::Index(listed) if depth < MAX_INDEXES => {
                let named = if depth == 0 { from.named(&listed)? } else { None };
                let chosen = named.map_or_else(|| manifest::choose(&listed, wanted), Ok);
                let chosen = &chosen
                    .map_err(|offered| not_for(from.image(), wanted, &offered))?
                    .descriptor;
                bounded(chosen, limits.manifest_bytes, "the manifest")?;
                bytes = verified(from.manifest(chosen)?, chosen, "the manifest")?;
            }
            Document::Index(_) => break,
        }
    }
    Err(bad("it is an index in an index, again and again".to_owned()))
}

fn complete(
    from: &impl Documents,
    wanted: &Platform,
    limits: &Limits,
    manifest: Vec<u8>,
    (config, layers): (Descriptor, Vec<Descriptor>),
) -> Result<Found, PullError> {
    bounded(&config, limits.config_bytes, "the configuration")?;
    let config = verified(from.blob(&config)?, &config, "the configuration")?;
    let layer = |layer: Descriptor| Layer {
        digest: Some(layer.digest),
        size: layer.size,
        offset: 0,
    };
    let found = Found {
        digest: Digest::of(&manifest),
        manifest: Some(manifest),
        configuration: manifest::read_config(&config).map_err(|reason| PullError::Manifest {
            image: from.image(),
            reason,
        })?,
        config,
        layers: layers.into_iter().map(layer).collect(),
    };
    judge(found, &from.image(), wanted, limits)
}

/// What every image has to be, whatever it came from.
pub(crate) fn judge(
    found: Found,
    image: &str,
    wanted: &Platform,
    limits: &Limits,
) -> Result<Found, PullError> {
    let (layers, ids) = (found.layers.len(), found.configuration.diff_ids.len());
    if layers != ids || layers > limits.layers {
        let reason = format!(
            "it has {layers} layers and {ids} diff ids, and at most {} are allowed",
            limits.layers
        );
        return Err(PullError::Manifest {
            image: image.to_owned(),
            reason,
        });
    }
    if let Some(platform) = &found.configuration.platform
        && wanted.fit(platform).is_none()
        // Not every builder writes the variant into the configuration.
        && !(platform.variant.is_none() && (&platform.os, &platform.architecture) == (&wanted.os, &wanted.architecture))
    {
        return Err(not_for(image.to_owned(), wanted, &[platform.to_string()]));
    }
    let sizes = found
        .layers
        .iter()
        .try_fold(0u64, |sum, layer| sum.checked_add(layer.size));
    if sizes.is_none_or(|sum| sum > limits.transferred_bytes) {
        return Err(PullError::TooLarge {
            what: "the size of all layers".to_owned(),
            limit: limits.transferred_bytes,
        });
    }
    Ok(found)
}

fn not_for(image: String, wanted: &Platform, offered: &[String]) -> PullError {
    let offered = if offered.is_empty() {
        "none that it names".to_owned()
    } else {
        offered.join(", ")
    };
    PullError::Platform {
        image,
        wanted: wanted.to_string(),
        offered,
    }
}

fn bounded(descriptor: &Descriptor, limit: u64, what: &str) -> Result<(), PullError> {
    match descriptor.size > limit {
        true => Err(PullError::TooLarge {
            what: what.to_owned(),
            limit,
        }),
        false => Ok(()),
    }
}

/// The bytes, if they are what was asked for.
pub(crate) fn verified(bytes: Vec<u8>, descriptor: &Descriptor, what: &str) -> Result<Vec<u8>, PullError> {
    let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
    if (digest, size) == (descriptor.digest, descriptor.size) {
        return Ok(bytes);
    }
    let what = format!("{what} {}", descriptor.digest);
    let reason = match size == descriptor.size {
        true => format!("its digest is {digest}"),
        false => format!("it is {size} bytes long and not {}", descriptor.size),
    };
    Err(PullError::Mismatch { what, reason })
}
