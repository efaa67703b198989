//! From a reference to an image in the store.

use crate::digest::{Digest, Hashing};
use crate::error::PullError;
use crate::event::{OnEvent, PullEvent};
use crate::limits::Limits;
use crate::platform::Platform;
use crate::reference::Reference;
use crate::source::archive::Archive;
use crate::source::daemon;
use crate::source::http::Patience;
use crate::source::layout::Layout;
use crate::source::registry::{Credentials, Registry};
use crate::source::{Found, Layer, Source};
use crate::store::{ImageRecord, LayerFacts, Store, io_error};
use crate::transfer::{self, Transfer};
use crate::unpack::{Budget, LayerError, unpack_layer};
use std::collections::HashSet;
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use stead_types::secret::{EnvSecrets, SecretSource};
use tempfile::TempDir;
use time::OffsetDateTime;

/// Layers that are transferred and unpacked at once; Docker has three as well.
const WORKERS: usize = 3;

/// How to log in to a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub username: String,
    /// The name of the password, docs/adr/0009.
    pub password_secret: String,
}

/// How an image is pulled.
#[derive(Clone)]
pub struct PullOptions {
    /// For which platform. Default: Linux on this machine.
    pub platform: Platform,
    /// How to log in; without it as nobody. Default: without.
    pub login: Option<Login>,
    /// Where passwords are. Default: variables of this process.
    pub secrets: Arc<dyn SecretSource>,
    /// Whether a registry of another machine may be spoken to without TLS. Default: no.
    pub plain_http: bool,
    /// What an image may ask of this machine.
    pub limits: Limits,
    /// How long things may take.
    pub patience: Patience,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            platform: Platform::of_this_host(),
            login: None,
            secrets: Arc::new(EnvSecrets),
            plain_http: false,
            limits: Limits::default(),
            patience: Patience::default(),
        }
    }
}

impl std::fmt::Debug for PullOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            platform,
            login,
            plain_http,
            limits,
            patience,
            ..
        } = self;
        f.debug_struct("PullOptions")
            .field("platform", platform)
            .field("login", login)
            .field("plain_http", plain_http)
            .field("limits", limits)
            .field("patience", patience)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Pulls an image and lists it. It blocks; whoever cannot wait calls it on a thread of its own, and ends
    /// it through `on_event`.
    ///
    /// What is there already is not transferred again, and what was transferred of a broken pull is taken up.
    pub fn pull(
        &self,
        reference: &Reference,
        options: &PullOptions,
        on_event: OnEvent<'_>,
    ) -> Result<ImageRecord, PullError> {
        let _content = self.keep_content()?;
        let source = self.source(reference, options)?;
        let found = source.find(&options.platform, &options.limits)?;
        let pull = Pull {
            store: self,
            source: &*source,
            options,
            on_event,
            budget: Budget::new(&options.limits),
            is_over: AtomicBool::new(false),
        };
        pull.tell(PullEvent::Resolved {
            digest: found.digest,
            layers: found.layers.len(),
            bytes: pull.bytes_to_transfer(&found)?,
        })?;
        pull.layers(&found)?;
        self.finish(reference, options, &found)
    }

    fn source(&self, reference: &Reference, options: &PullOptions) -> Result<Box<dyn Source>, PullError> {
        let staging = self.staging();
        Ok(match reference {
            Reference::Registry(name) => {
                let credentials = options.credentials()?;
                Box::new(Registry::new(
                    name.clone(),
                    credentials,
                    options.patience,
                    options.plain_http,
                ))
            }
            Reference::Layout { path, tag } => Box::new(Layout {
                path: path.clone(),
                tag: tag.clone(),
            }),
            Reference::Archive { path, name } => {
                Box::new(Archive::open(path, name.clone(), &staging, &options.limits)?)
            }
            Reference::Daemon { name } => {
                let socket = daemon::socket(|name| std::env::var_os(name))?;
                Box::new(daemon::export(
                    &socket,
                    name,
                    options.patience,
                    &staging,
                    &options.limits,
                )?)
            }
        })
    }

    fn finish(
        &self,
        reference: &Reference,
        options: &PullOptions,
        found: &Found,
    ) -> Result<ImageRecord, PullError> {
        let mut size = 0;
        for diff_id in &found.configuration.diff_ids {
            size += self.layer_facts(diff_id)?.map_or(0, |facts| facts.bytes);
        }
        found
            .manifest
            .as_ref()
            .map(|manifest| self.add_blob(manifest))
            .transpose()?;
        let record = ImageRecord {
            reference: reference.to_string(),
            digest: found.digest,
            platform: found
                .configuration
                .platform
                .clone()
                .unwrap_or_else(|| options.platform.clone()),
            size,
            pulled_at: OffsetDateTime::now_utc(),
            config: self.add_blob(&found.config)?,
            layers: found.configuration.diff_ids.clone(),
        };
        self.record(record.clone())?;
        Ok(record)
    }
}

impl PullOptions {
    fn credentials(&self) -> Result<Option<Credentials>, PullError> {
        let Some(login) = &self.login else { return Ok(None) };
        let password = self
            .secrets
            .secret(&login.password_secret)
            .map_err(|reason| PullError::Secret {
                name: login.password_secret.clone(),
                reason,
            })?;
        Ok(Some(Credentials {
            username: login.username.clone(),
            password,
        }))
    }
}

/// An unpacked layer that has no name yet, and is gone when dropped.
struct Staged {
    _made: TempDir,
    folder: PathBuf,
    facts: LayerFacts,
}

struct Pull<'a> {
    store: &'a Store,
    source: &'a dyn Source,
    options: &'a PullOptions,
    on_event: OnEvent<'a>,
    budget: Budget,
    /// One layer has failed, or the caller wants no more.
    is_over: AtomicBool,
}

impl Pull<'_> {
    fn tell(&self, event: PullEvent) -> Result<(), PullError> {
        if (self.on_event)(event).is_break() {
            self.is_over.store(true, Ordering::Relaxed);
        }
        match self.is_over.load(Ordering::Relaxed) {
            true => Err(PullError::Cancelled),
            false => Ok(()),
        }
    }

    /// Each layer once, with its diff id: images may have the same one twice.
    fn distinct<'f>(&self, found: &'f Found) -> Vec<(Digest, &'f Layer)> {
        let mut seen = HashSet::new();
        let all = found.configuration.diff_ids.iter().copied().zip(&found.layers);
        all.filter(|(diff_id, _)| seen.insert(*diff_id)).collect()
    }

    fn bytes_to_transfer(&self, found: &Found) -> Result<u64, PullError> {
        let mut bytes = 0;
        for (diff_id, layer) in self.distinct(found) {
            if self.store.layer_facts(&diff_id)?.is_none() {
                bytes += layer.size;
            }
        }
        Ok(bytes)
    }

    /// All layers, some at once. The first failure ends the others, and is what is told.
    fn layers(&self, found: &Found) -> Result<(), PullError> {
        let layers = self.distinct(found);
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            while let Some((diff_id, layer)) = layers.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.layer(*diff_id, layer) {
                    // First told, then ended: else another would be told for it as cancelled.
                    failure
                        .lock()
                        .unwrap_or_else(|lock| lock.into_inner())
                        .get_or_insert(error);
                    self.is_over.store(true, Ordering::Relaxed);
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..WORKERS.min(layers.len()) {
                scope.spawn(work);
            }
        });
        match failure.into_inner().unwrap_or_else(|lock| lock.into_inner()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn layer(&self, diff_id: Digest, layer: &Layer) -> Result<(), PullError> {
        if self.store.layer_facts(&diff_id)?.is_some() {
            return self.tell(PullEvent::Present { layer: diff_id });
        }
        if !self.source.is_remote() {
            return self.read(diff_id, layer);
        }
        let Some(digest) = layer.digest else {
            let reason = "a layer has no digest".to_owned();
            return Err(PullError::Manifest {
                image: diff_id.to_string(),
                reason,
            });
        };
        let partial = transfer::Partial::lock(&self.store.partial(&digest))?;
        // Somebody else may have finished it while we waited.
        if self.store.layer_facts(&diff_id)?.is_some() {
            return self.tell(PullEvent::Present { layer: diff_id });
        }
        let transfer = Transfer {
            source: self.source,
            layer,
            digest,
            patience: self.options.patience,
            tell: &|done, total| {
                self.tell(PullEvent::Transferring {
                    layer: diff_id,
                    done,
                    total,
                })
            },
            retry: &|reason| {
                self.tell(PullEvent::Retrying {
                    layer: diff_id,
                    reason,
                })
            },
        };
        let whole = transfer.run(&partial)?;
        let staged = self.unpack(diff_id, whole)?;
        self.keep(diff_id, &staged)?;
        // It is of no use any more; layers are kept unpacked.
        Ok(partial.remove()?)
    }

    /// From a source of this machine, without a copy.
    fn read(&self, diff_id: Digest, layer: &Layer) -> Result<(), PullError> {
        self.tell(PullEvent::Transferring {
            layer: diff_id,
            done: 0,
            total: layer.size,
        })?;
        // One byte more than there may be, to see it.
        let reader = self
            .source
            .open(layer, 0)?
            .reader
            .take(layer.size.saturating_add(1));
        let mut reader = Hashing::new(reader);
        let staged = self.unpack(diff_id, &mut reader)?;
        let rest = std::io::copy(&mut reader, &mut std::io::sink());
        rest.map_err(|source| PullError::Layer {
            layer: diff_id,
            source: LayerError::Damaged { source },
        })?;
        let (found, size) = (reader.digest(), reader.count());
        if size != layer.size || layer.digest.is_some_and(|digest| digest != found) {
            let reason = format!("it is {size} bytes long with the digest {found}");
            return Err(PullError::Mismatch {
                what: format!("the layer {diff_id}"),
                reason,
            });
        }
        self.keep(diff_id, &staged)
    }

    fn unpack(&self, diff_id: Digest, reader: impl Read) -> Result<Staged, PullError> {
        self.tell(PullEvent::Unpacking { layer: diff_id })?;
        let staging = self.store.staging();
        let made = tempfile::Builder::new().prefix("layer-").tempdir_in(&staging);
        let made = made.map_err(io_error("make a folder in", &staging))?;
        let cancelled = || self.is_over.load(Ordering::Relaxed);
        // Within our folder, so that its own attributes may be what the layer says.
        let folder = made.path().join("layer");
        std::fs::create_dir(&folder).map_err(io_error("make", &folder))?;
        let unpacked = unpack_layer(reader, &folder, &self.options.limits, &self.budget, &cancelled);
        let unpacked = unpacked.and_then(|unpacked| match unpacked.diff_id == diff_id {
            true => Ok(unpacked),
            false => Err(LayerError::OtherContent {
                found: unpacked.diff_id,
            }),
        });
        let unpacked = unpacked.map_err(|source| match source {
            LayerError::Cancelled => PullError::Cancelled,
            source => PullError::Layer {
                layer: diff_id,
                source,
            },
        })?;
        let facts = LayerFacts {
            bytes: unpacked.bytes,
            entries: unpacked.entries,
            devices: unpacked.devices,
        };
        Ok(Staged {
            _made: made,
            folder,
            facts,
        })
    }

    fn keep(&self, diff_id: Digest, staged: &Staged) -> Result<(), PullError> {
        self.store.add_layer(&diff_id, &staged.folder, staged.facts)?;
        let LayerFacts { bytes, devices, .. } = staged.facts;
        self.tell(PullEvent::Unpacked {
            layer: diff_id,
            bytes,
            devices,
        })
    }
}
