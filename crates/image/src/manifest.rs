//! Manifests, indexes and configurations: of their JSON what we use, read with care.

use crate::digest::Digest;
use crate::platform::Platform;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What a registry is asked for.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// Kinds of configurations of images that can run, and not of charts, signatures or modules.
const CONFIGS: [&str; 2] = [
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
];

/// Kinds of layers. How one is compressed its own first bytes say.
const LAYERS: [&str; 8] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
    "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
];

/// The annotation that names an image of a layout.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";

#[derive(Debug, Deserialize)]
struct RawDocument {
    #[serde(rename = "schemaVersion")]
    schema_version: Option<u64>,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
    manifests: Option<Vec<RawDescriptor>>,
}

#[derive(Debug, Clone, Deserialize)]
struct RawDescriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    platform: Option<RawPlatform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct RawPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

/// Content by its digest and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub digest: Digest,
    pub size: u64,
}

/// One of an index.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub descriptor: Descriptor,
    /// `None` where it does not say, or where it is no image.
    pub platform: Option<Platform>,
    pub name: Option<String>,
}

/// A document that a registry or a layout has under a name or digest.
#[derive(Debug)]
pub(crate) enum Document {
    /// Of one image.
    Manifest {
        config: Descriptor,
        layers: Vec<Descriptor>,
    },
    /// Of several.
    Index(Vec<Listed>),
}

impl RawDescriptor {
    fn read(&self) -> Result<Descriptor, String> {
        let digest = self.digest.parse().map_err(|error| format!("{error}"))?;
        Ok(Descriptor {
            digest,
            size: self.size,
        })
    }

    fn of_kind(&self, kinds: &[&str]) -> Result<Descriptor, String> {
        match kinds.contains(&self.media_type.as_str()) {
            true => self.read(),
            false => Err(format!("it has a part of the kind {:?}", shown(&self.media_type))),
        }
    }
}

impl RawPlatform {
    fn read(&self) -> Option<Platform> {
        let variant = self.variant.as_deref().filter(|variant| !variant.is_empty());
        let mut text = format!("{}/{}", self.os, self.architecture);
        variant
            .iter()
            .for_each(|variant| text = format!("{text}/{variant}"));
        text.parse().ok()
    }
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Reads a manifest or an index.
pub(crate) fn read(bytes: &[u8], max_layers: usize) -> Result<Document, String> {
    let raw: RawDocument =
        serde_json::from_slice(bytes).map_err(|error| format!("it is no JSON of a manifest: {error}"))?;
    if raw.schema_version != Some(2) {
        return Err("its schema version is not 2".to_owned());
    }
    match (raw.manifests, raw.config, raw.layers) {
        (Some(manifests), None, None) => Ok(Document::Index(manifests.iter().filter_map(listed).collect())),
        (None, Some(config), Some(layers)) => {
            if layers.len() > max_layers {
                return Err(format!(
                    "it has {} layers, and {max_layers} are allowed",
                    layers.len()
                ));
            }
            let layers = layers
                .iter()
                .map(|layer| layer.of_kind(&LAYERS))
                .collect::<Result<_, _>>()?;
            let config = config.of_kind(&CONFIGS)?;
            Ok(Document::Manifest { config, layers })
        }
        // Whoever reads it otherwise would run another image than we do.
        (Some(_), ..) => Err("it is an index and a manifest at once".to_owned()),
        _ => Err("it is neither a manifest nor an index".to_owned()),
    }
}

/// What cannot be read of an index is not for us; what it has for us is read again when it is chosen.
fn listed(raw: &RawDescriptor) -> Option<Listed> {
    Some(Listed {
        descriptor: raw.read().ok()?,
        platform: raw.platform.as_ref().and_then(RawPlatform::read),
        name: raw
            .annotations
            .as_ref()
            .and_then(|all| all.get(REF_NAME).cloned()),
    })
}

/// The one that fits best, the first of equals; else what is offered.
pub(crate) fn choose<'a>(listed: &'a [Listed], wanted: &Platform) -> Result<&'a Listed, Vec<String>> {
    let fits = listed
        .iter()
        .filter_map(|one| Some((wanted.fit(one.platform.as_ref()?)?, one)));
    // `max_by_key` would take the last of equals.
    let best = fits.fold(None, |best: Option<(u8, &Listed)>, (fit, one)| match best {
        Some((best_fit, _)) if best_fit >= fit => best,
        _ => Some((fit, one)),
    });
    best.map(|(_, one)| one).ok_or_else(|| {
        let known = listed.iter().filter_map(|one| one.platform.as_ref());
        known
            .filter(|platform| platform.os != "unknown")
            .map(ToString::to_string)
            .take(50)
            .collect()
    })
}

#[derive(Debug, Deserialize)]
struct RawConfig {
    #[serde(flatten)]
    platform: RawPlatform,
    config: Option<RawRuntime>,
    rootfs: RawRootfs,
}

#[derive(Debug, Deserialize)]
struct RawRootfs {
    #[serde(default)]
    diff_ids: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RawRuntime {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
}

/// How an image wants its program to be started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// `NAME=value`.
    pub env: Vec<String>,
    /// The working directory; `None` is `/`.
    pub workdir: Option<String>,
    /// `user[:group]`, names or numbers; `None` is root.
    pub user: Option<String>,
    /// In front of the command.
    pub entrypoint: Vec<String>,
    /// The command, or its arguments where there is an entrypoint.
    pub cmd: Vec<String>,
}

/// A configuration as far as it is used.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// `None` where it does not say.
    pub platform: Option<Platform>,
    pub runtime: ImageConfig,
    /// Of the layers, the lowest first.
    pub diff_ids: Vec<Digest>,
}

/// Reads a configuration.
pub(crate) fn read_config(bytes: &[u8]) -> Result<Configuration, String> {
    let raw: RawConfig = serde_json::from_slice(bytes)
        .map_err(|error| format!("its configuration cannot be read: {error}"))?;
    let diff_ids = raw.rootfs.diff_ids.unwrap_or_default();
    let diff_ids = diff_ids
        .iter()
        .map(|id| id.parse().map_err(|error| format!("{error}")));
    let set = |text: Option<String>| text.filter(|text| !text.is_empty());
    let run = raw.config.unwrap_or_default();
    let runtime = ImageConfig {
        env: run.env.unwrap_or_default(),
        workdir: set(run.working_dir),
        user: set(run.user),
        entrypoint: run.entrypoint.unwrap_or_default(),
        cmd: run.cmd.unwrap_or_default(),
    };
    let lists = [&runtime.env, &runtime.entrypoint, &runtime.cmd];
    let texts = lists
        .into_iter()
        .flatten()
        .chain(&runtime.workdir)
        .chain(&runtime.user);
    if texts.into_iter().any(|text| text.contains('\0')) {
        return Err("its configuration has a text with a NUL byte".to_owned());
    }
    Ok(Configuration {
        platform: raw.platform.read(),
        runtime,
        diff_ids: diff_ids.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn manifest(kind: &str, layer: &str, layers: usize) -> String {
        let layer = format!(r#"{{"mediaType":"{layer}","digest":"{DIGEST}","size":1}}"#);
        format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"{kind}","digest":"{DIGEST}","size":1}},"layers":[{}]}}"#,
            vec![layer; layers].join(",")
        )
    }

    #[test]
    fn a_manifest_is_read_and_what_is_no_image_is_refused() {
        let read = |text: &str| read(text.as_bytes(), 2);
        let good = manifest(CONFIGS[0], LAYERS[1], 2);
        assert!(matches!(read(&good), Ok(Document::Manifest { layers, .. }) if layers.len() == 2));
        let index = r#"{"schemaVersion":2,"manifests":[]}"#;
        assert!(matches!(read(index), Ok(Document::Index(_))));
        for (bad, part) in [
            (manifest(CONFIGS[0], LAYERS[1], 3), "3 layers"),
            (
                manifest("application/vnd.cncf.helm.config.v1+json", LAYERS[1], 1),
                "helm",
            ),
            (
                manifest(CONFIGS[0], "application/vnd.oci.image.layer.v1.tar+encrypted", 1),
                "encrypted",
            ),
            (
                good.replace("\"schemaVersion\":2", "\"schemaVersion\":1"),
                "schema",
            ),
            (good.replace("sha256:e3", "sha512:e3"), "sha512"),
            (
                good.replace("{\"schemaVersion\":2", "{\"schemaVersion\":2,\"manifests\":[]"),
                "at once",
            ),
            (good.replace("\"size\":1", "\"size\":-1"), "JSON"),
            (r#"{"schemaVersion":2}"#.to_owned(), "neither"),
            ("[".repeat(100_000), "JSON"),
            (String::new(), "JSON"),
        ] {
            let reason = read(&bad).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn the_platform_that_fits_best_is_chosen() {
        let one = |os: &str, arch: &str, variant: &str| {
            format!(
                r#"{{"digest":"{DIGEST}","size":1,"platform":{{"os":"{os}","architecture":"{arch}","variant":"{variant}"}}}}"#
            )
        };
        let all = [
            one("unknown", "unknown", ""),
            one("linux", "arm", "v6"),
            one("linux", "arm", "v7"),
            one("linux", "arm64", "v8"),
        ];
        let text = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, all.join(","));
        let Ok(Document::Index(listed)) = read(text.as_bytes(), 1) else {
            panic!("it is an index")
        };
        let chosen = |wanted: &str| match choose(&listed, &wanted.parse().unwrap()) {
            Ok(one) => one.platform.as_ref().unwrap().to_string(),
            Err(offered) => offered.join(" "),
        };
        assert_eq!(chosen("linux/arm/v7"), "linux/arm/v7");
        assert_eq!(chosen("linux/arm"), "linux/arm/v6");
        assert_eq!(chosen("linux/arm64"), "linux/arm64/v8");
        assert_eq!(chosen("linux/amd64"), "linux/arm/v6 linux/arm/v7 linux/arm64/v8");
    }

    #[test]
    fn a_configuration_is_read_with_and_without_what_may_be_missing() {
        let whole = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{"Env":["A=b"],"Entrypoint":["/e"],"Cmd":["c"],"WorkingDir":"/w","User":"1:2"}},"rootfs":{{"type":"layers","diff_ids":["{DIGEST}"]}}}}"#
        );
        let read = read_config(whole.as_bytes()).unwrap();
        assert_eq!(read.platform.unwrap().to_string(), "linux/amd64");
        let runtime = read.runtime;
        assert_eq!(
            (runtime.env, runtime.workdir.as_deref(), runtime.user.as_deref()),
            (vec!["A=b".to_owned()], Some("/w"), Some("1:2"))
        );
        assert_eq!(read.diff_ids.len(), 1);
        let bare = r#"{"config":{"Env":null,"Cmd":null,"User":""},"rootfs":{}}"#;
        let read = read_config(bare.as_bytes()).unwrap();
        assert_eq!((read.runtime, read.platform), (ImageConfig::default(), None));
        for bad in [
            "{}",
            r#"{"rootfs":{"diff_ids":["x"]}}"#,
            r#"{"config":{"Env":["a\u0000"]},"rootfs":{}}"#,
        ] {
            assert!(read_config(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
