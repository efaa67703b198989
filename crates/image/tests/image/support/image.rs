//! A small image in all the shapes that images come in.

use super::{Tar, gzip, zstd};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use stead_image::Digest;

pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Blobs by digest, and which of them is the manifest.
#[derive(Clone)]
pub struct Fixture {
    pub blobs: BTreeMap<String, Vec<u8>>,
    pub manifest: Digest,
    pub config: Digest,
    /// As they are transferred.
    pub layers: Vec<Digest>,
    /// Uncompressed, the lowest first.
    pub archives: Vec<Vec<u8>>,
}

pub fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": Digest::of(bytes).to_string(), "size": bytes.len()})
}

impl Fixture {
    /// Two layers, the second of which removes a file of the first.
    pub fn new() -> Self {
        // Noise, so that the layer is larger than the buffers of everything on the way.
        let noise: Vec<u8> = (0..400_000u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let lower = Tar::new()
            .dir("etc")
            .file("etc/old", b"1")
            .file("noise", &noise)
            .end();
        let upper = Tar::new().file("etc/.wh.old", b"").file("etc/new", b"2").end();
        Self::of("linux", "amd64", vec![lower, upper])
    }

    pub fn of(os: &str, architecture: &str, archives: Vec<Vec<u8>>) -> Self {
        let ids: Vec<String> = archives
            .iter()
            .map(|layer| Digest::of(layer).to_string())
            .collect();
        let config = json!({
            "os": os, "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": ids},
            "config": {"Env": ["PATH=/bin"], "Entrypoint": ["/e"], "Cmd": ["c"], "WorkingDir": "/w", "User": "1:2"},
        });
        Self::with_config(&config, archives)
    }

    pub fn with_config(config: &Value, archives: Vec<Vec<u8>>) -> Self {
        let config = config.to_string().into_bytes();
        let packed: Vec<(String, Vec<u8>)> = archives
            .iter()
            .enumerate()
            .map(|(at, layer)| match at % 2 {
                0 => (format!("{OCI_LAYER}+gzip"), gzip(layer)),
                _ => (format!("{OCI_LAYER}+zstd"), zstd(layer)),
            })
            .collect();
        let layers: Vec<Value> = packed
            .iter()
            .map(|(kind, bytes)| descriptor(kind, bytes))
            .collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": descriptor(OCI_CONFIG, &config), "layers": layers,
        });
        let manifest = manifest.to_string().into_bytes();
        let digests = packed.iter().map(|(_, bytes)| Digest::of(bytes)).collect();
        let (manifest_digest, config_digest) = (Digest::of(&manifest), Digest::of(&config));
        let all = packed
            .into_iter()
            .map(|(_, bytes)| bytes)
            .chain([config, manifest]);
        Self {
            blobs: all.map(|bytes| (Digest::of(&bytes).to_string(), bytes)).collect(),
            manifest: manifest_digest,
            config: config_digest,
            layers: digests,
            archives,
        }
    }

    pub fn blob(&self, digest: &Digest) -> &[u8] {
        &self.blobs[&digest.to_string()]
    }

    /// An index of images with their platforms.
    pub fn index(images: &[(&Self, &str)]) -> Vec<u8> {
        let one = |(image, platform): &(&Self, &str)| {
            let mut one = descriptor(OCI_MANIFEST, image.blob(&image.manifest));
            let (os, architecture) = platform.split_once('/').unwrap();
            one["platform"] = json!({"os": os, "architecture": architecture});
            one
        };
        let all: Vec<Value> = images.iter().map(one).collect();
        json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": all})
            .to_string()
            .into_bytes()
    }

    /// As an OCI layout.
    pub fn write_layout(&self, folder: &Path, tag: &str) {
        let blobs = folder.join("blobs/sha256");
        std::fs::create_dir_all(&blobs).unwrap();
        for (digest, bytes) in &self.blobs {
            std::fs::write(blobs.join(digest.trim_start_matches("sha256:")), bytes).unwrap();
        }
        let mut one = descriptor(OCI_MANIFEST, self.blob(&self.manifest));
        one["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        let index = json!({"schemaVersion": 2, "manifests": [one]});
        std::fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        std::fs::write(folder.join("index.json"), index.to_string()).unwrap();
    }

    /// As `docker save` writes it; a layer may be a link to another.
    pub fn archive(&self, tag: &str) -> Vec<u8> {
        let config = format!("{}.json", self.config.hex());
        let names: Vec<String> = (0..self.archives.len())
            .map(|at| format!("layer{at}/layer.tar"))
            .collect();
        let manifest = json!([{"Config": config, "RepoTags": [tag], "Layers": names}]);
        let mut tar = Tar::new();
        for (name, layer) in names.iter().zip(&self.archives) {
            let real = format!("real/{}", name.replace('/', "-"));
            tar = tar.file(&real, layer).symlink(name, &format!("../{real}"));
        }
        tar.file(&config, self.blob(&self.config))
            .file("manifest.json", manifest.to_string().as_bytes())
            .end()
    }
}
