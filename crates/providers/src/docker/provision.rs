//! Bringing up a container: image, folder, container, link. Each step has its undo, which runs when a
//! later step fails and when the caller goes away.

use super::PROVIDER;
use super::address::{Address, usual_sockets};
use super::archive::supervisor_archive;
use super::dial::{DialRelay, socket_inside};
use super::engine::{Engine, EngineFacts};
use super::error::EngineError;
use super::image::{ImageFacts, Prepare};
use super::labels::{InstanceLabels, Owner, container_name};
use super::options::Options;
use super::plan::{Access, CONTROL_DIR, DEFAULT_IMAGE, GrantedMount, InstanceFacts, Plan, RUN_DIR, plan};
use super::provider::Settings;
use super::reference::ImageRef;
use crate::guard::{Guarded, guard};
use crate::link::{Dial, DialPath, Link, Transport};
use crate::place::{Place, place_error};
use crate::state::{InstanceFolder, ProcessIdentity, Record, State, new_key};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_types::{Axes, ComputeConfig, ComputeInstance, InstanceId, InstanceStatus, ProvisionError};
use stead_wire::Key;
use tokio::runtime::Handle;

/// How long the supervisor of a started container may take until it listens.
const COMES_UP: Duration = Duration::from_secs(20);

/// Between two looks whether it listens.
const LOOK: Duration = Duration::from_millis(1);

/// How long a supervisor goes on without its owner: an engine elsewhere may be away for a moment.
const OWNER_GRACE_SECONDS: u64 = 20;

/// A live container, and what keeps it tidy.
#[derive(Debug)]
pub struct Brought {
    /// The place.
    pub place: Place,
    /// Told when the instance is gone.
    pub guarded: Option<Guarded>,
}

/// A failure of this host.
pub fn failed(what: &str, error: io::Error) -> ProvisionError {
    let reason = format!("{what}: {error}");
    ProvisionError::Failed {
        provider: PROVIDER.to_owned(),
        reason,
        source: Some(Box::new(error)),
    }
}

/// What stays the same over both ways to reach the supervisor.
struct Request<'a> {
    settings: &'a Settings,
    engine: &'a Engine,
    facts: EngineFacts,
    state: State,
    config: ComputeConfig,
    options: Options,
    image: ImageFacts,
    mounts: Vec<GrantedMount>,
}

/// Why one way did not work.
enum Attempt {
    /// The supervisor cannot be mounted from here, or its socket cannot be reached: the other way may.
    Unreachable(String),
    /// Nothing will work.
    Failed(ProvisionError),
}

impl From<ProvisionError> for Attempt {
    fn from(error: ProvisionError) -> Self {
        Self::Failed(error)
    }
}

/// Brings up a container.
pub async fn provision(
    settings: &Settings,
    state: State,
    config: ComputeConfig,
) -> Result<Brought, ProvisionError> {
    let engine = &settings.engine;
    let options = Options::parse(&config.options)?;
    let image = ImageRef::parse(config.image.as_deref().unwrap_or(DEFAULT_IMAGE))?;
    let facts = engine.facts().await.map_err(EngineError::into_provision)?;
    let prepare = Prepare {
        policy: options.pull_policy,
        auth: options.registry_auth.as_ref(),
        secrets: &*settings.secrets,
        progress: &*settings.progress,
    };
    let image = engine.prepare_image(&image, &prepare).await?;
    let mut mounts = Vec::new();
    for grant in &config.mounts {
        mounts.push(match facts.address.is_remote() {
            true => GrantedMount::as_given(grant),
            false => GrantedMount::resolve(grant).await?,
        });
    }
    let request = Request {
        settings,
        engine,
        facts,
        state,
        config,
        options,
        image,
        mounts,
    };
    if !request.facts.address.is_remote() && !settings.relay_only {
        match request.by_socket().await {
            Ok(brought) => return Ok(brought),
            Err(Attempt::Failed(error)) => return Err(error),
            Err(Attempt::Unreachable(reason)) => {
                tracing::info!(provider = PROVIDER, %reason, "the supervisor is reached through an exec");
            }
        }
    }
    request.by_relay().await
}

/// Removes what was made of an instance that did not come up.
struct Undo {
    runtime: Handle,
    engine: Engine,
    container: Option<String>,
    /// Whether the engine has answered the wish for it: until then it may make it later.
    answered: bool,
    folder: Option<InstanceFolder>,
    guarded: Option<Guarded>,
}

impl Undo {
    fn disarm(mut self) -> Option<Guarded> {
        self.container = None;
        self.folder = None;
        self.guarded.take()
    }

    /// What is to be removed, as a future of its own; afterwards nothing is.
    fn removal(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let (container, folder, guarded) = (self.container.take(), self.folder.take(), self.guarded.take());
        if container.is_none() && folder.is_none() {
            return None;
        }
        let (engine, answered) = (self.engine.clone(), self.answered);
        Some(async move {
            let removed = match &container {
                Some(container) if answered => engine.remove_container(container).await,
                Some(container) => engine.remove_unseen_container(container).await,
                None => Ok(()),
            };
            let container = container.as_deref().unwrap_or_default();
            if let Err(error) = &removed {
                tracing::warn!(provider = PROVIDER, %container, error = %error.whole(), "a container may be left");
            }
            // What could not be removed here is the guard's, or that of `prune`.
            let folder_gone = folder.is_none_or(|folder| folder.remove().is_ok());
            if let Some(guarded) = guarded.filter(|_| folder_gone && removed.is_ok()) {
                guarded.release();
            }
        })
    }
}

/// Only when the caller is gone: then nobody waits for the removal.
impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(removal) = self.removal() {
            self.runtime.spawn(removal);
        }
    }
}

/// Keeps what came up; removes what did not, before the error is told.
async fn finish<E>(mut undo: Undo, place: Result<Place, E>) -> Result<Brought, E> {
    match place {
        Ok(place) => Ok(Brought {
            place,
            guarded: undo.disarm(),
        }),
        Err(error) => {
            if let Some(removal) = undo.removal() {
                // A task of its own, so that it goes on when the caller is gone meanwhile.
                let _ = tokio::spawn(removal).await;
            }
            Err(error)
        }
    }
}

impl Request<'_> {
    fn labels(&self, id: &InstanceId) -> Result<InstanceLabels, ProvisionError> {
        let own = ProcessIdentity::current().map_err(|error| failed("this process", error))?;
        let owner = Owner {
            pid: u32::try_from(own.pid).unwrap_or(0),
            start: own.start_time,
            boot_id: own.boot_id,
        };
        Ok(InstanceLabels {
            instance: id.clone(),
            owner: Some(owner),
            created_at: Some(time::OffsetDateTime::now_utc()),
            detached: self.config.detached,
        })
    }

    /// The plan is made twice: what the supervisor is told depends on what the plan says of the users.
    fn plan(&self, id: &InstanceId, access: Access) -> Result<Plan, ProvisionError> {
        let mut engine_sockets =
            usual_sockets(std::env::var_os("XDG_RUNTIME_DIR").as_deref().map(AsRef::as_ref));
        if let Address::Unix(path) = &self.facts.address {
            engine_sockets.push(path.clone());
            engine_sockets.extend(path.canonicalize());
        }
        let mut facts = InstanceFacts {
            labels: self.labels(id)?,
            access,
            supervisor_args: Vec::new(),
            mounts: self.mounts.clone(),
            engine_sockets,
            api: self.facts.api,
            takes_filter: !self.facts.podman,
        };
        let first = plan(&self.config, &self.options, &self.image, &facts)?;
        facts.supervisor_args = self.supervisor_args(id, &first);
        plan(&self.config, &self.options, &self.image, &facts)
    }

    fn supervisor_args(&self, id: &InstanceId, plan: &Plan) -> Vec<String> {
        let mut args: Vec<String> = ["serve", "--instance"].map(str::to_owned).to_vec();
        args.extend([id.to_string(), "--socket".to_owned(), socket_inside()]);
        args.extend([
            "--unlink-key".to_owned(),
            "--key-file".to_owned(),
            format!("{CONTROL_DIR}/key"),
        ]);
        args.extend(["--workdir".to_owned(), plan.workdir.clone()]);
        if let Some(user) = &plan.command_user {
            args.extend(["--user".to_owned(), user.clone()]);
        }
        if !self.config.detached {
            args.extend(["--owner-grace".to_owned(), OWNER_GRACE_SECONDS.to_string()]);
        }
        args
    }

    fn undo(&self) -> Undo {
        let runtime = Handle::current();
        Undo {
            runtime,
            engine: self.engine.clone(),
            container: None,
            answered: false,
            folder: None,
            guarded: None,
        }
    }

    async fn by_socket(&self) -> Result<Brought, Attempt> {
        let mut undo = self.undo();
        let place = self.by_socket_steps(&mut undo).await;
        finish(undo, place).await
    }

    async fn by_socket_steps(&self, undo: &mut Undo) -> Result<Place, Attempt> {
        let id = InstanceId::generate();
        let key = new_key().map_err(|error| failed("no key could be made", error))?;
        let supervisor = self
            .state
            .supervisor()
            .map_err(|error| failed("the supervisor could not be installed", error))?;
        let folder = self.state.folder(&id);
        let access = Access::Socket {
            supervisor: supervisor.clone(),
            control: folder.ctl(),
        };
        let plan = self.plan(&id, access)?;
        self.guard(undo, &supervisor, &folder, &plan)?;
        undo.folder = Some(folder.clone());
        self.state
            .create(&id, &key)
            .and_then(|folder| open_control(&folder, &key))
            .map_err(|error| failed("its folder could not be made", error))?;
        self.create(undo, &plan).await?;
        self.engine
            .start_container(&plan.name)
            .await
            .map_err(|error| self.start_failed(error))?;
        let socket = self.wait_for_socket(&folder, &plan.name).await?;
        let dial = Arc::new(DialPath(folder.socket()));
        let place = self.greet(&id, &key, socket, dial, plan, "socket").await?;
        self.record(&folder, &place)?;
        Ok(place)
    }

    async fn by_relay(&self) -> Result<Brought, ProvisionError> {
        let mut undo = self.undo();
        let place = self.by_relay_steps(&mut undo).await;
        finish(undo, place).await
    }

    async fn by_relay_steps(&self, undo: &mut Undo) -> Result<Place, ProvisionError> {
        let id = InstanceId::generate();
        let key = new_key().map_err(|error| failed("no key could be made", error))?;
        let plan = self.plan(&id, Access::ExecRelay)?;
        let supervisor = self
            .state
            .supervisor()
            .map_err(|error| failed("the supervisor could not be installed", error))?;
        let folder = self.state.folder(&id);
        self.guard(undo, &supervisor, &folder, &plan)?;
        undo.folder = Some(folder.clone());
        // Nothing of it is in the place: it is how another process finds the instance.
        self.state
            .create(&id, &key)
            .map_err(|error| failed("its folder could not be made", error))?;
        let unreachable = |attempt| match attempt {
            Attempt::Failed(error) => error,
            Attempt::Unreachable(reason) => ProvisionError::Failed {
                provider: PROVIDER.to_owned(),
                reason,
                source: None,
            },
        };
        self.create(undo, &plan).await.map_err(unreachable)?;
        let owner = plan.body.user.as_deref().and_then(numeric_owner);
        let archive = supervisor_archive(crate::supervisor::SUPERVISOR, key.as_bytes(), owner)
            .map_err(|error| failed("the supervisor could not be packed", error))?;
        self.engine
            .upload_archive(&plan.name, RUN_DIR, archive)
            .await
            .map_err(EngineError::into_provision)?;
        self.engine
            .start_container(&plan.name)
            .await
            .map_err(EngineError::into_provision)?;
        let dial = Arc::new(DialRelay {
            engine: self.engine.clone(),
            container: plan.name.clone(),
        });
        let place = self.greet_by_relay(&id, &key, dial, plan).await?;
        self.record(&folder, &place)?;
        Ok(place)
    }

    /// Tells the guard of everything before any of it is there: whenever we are killed, it is removed.
    fn guard(
        &self,
        undo: &mut Undo,
        supervisor: &std::path::Path,
        folder: &InstanceFolder,
        plan: &Plan,
    ) -> Result<(), ProvisionError> {
        if let (Address::Unix(engine), false) = (&self.facts.address, self.config.detached) {
            let guarded = guard(supervisor, folder.path(), Some((engine, &plan.name)));
            undo.guarded = Some(guarded.map_err(|error| failed("the guard could not be started", error))?);
        }
        Ok(())
    }

    /// Creates the container. It is to be removed from before it may exist: a creation that is dropped can
    /// still have happened.
    async fn create(&self, undo: &mut Undo, plan: &Plan) -> Result<(), Attempt> {
        undo.container = Some(plan.name.clone());
        let created = self.engine.create_container(&plan.name, plan.body.clone()).await;
        undo.answered = created
            .as_ref()
            .err()
            .is_none_or(|error| error.status().is_some());
        match created {
            Ok(_) => Ok(()),
            Err(error) if error.is_bind_source_missing() => Err(Attempt::Unreachable(error.whole())),
            Err(error) => Err(Attempt::Failed(error.into_provision())),
        }
    }

    fn start_failed(&self, error: EngineError) -> Attempt {
        match error.is_bind_source_missing() {
            true => Attempt::Unreachable(error.whole()),
            false => Attempt::Failed(error.into_provision()),
        }
    }

    /// Connects as soon as the supervisor listens.
    async fn wait_for_socket(&self, folder: &InstanceFolder, container: &str) -> Result<Transport, Attempt> {
        let until = Instant::now() + COMES_UP;
        let mut look_at_container = Instant::now() + Duration::from_millis(500);
        loop {
            match crate::link::connect(&folder.socket()).await {
                Ok(stream) => return Ok(stream.into()),
                // It is there and nobody is behind it: the engine runs on another machine that shares the folder.
                Err(error) if Instant::now() >= until => {
                    return Err(Attempt::Unreachable(format!(
                        "its socket cannot be reached: {error}"
                    )));
                }
                Err(_) => {}
            }
            if Instant::now() >= look_at_container {
                look_at_container = Instant::now() + Duration::from_millis(500);
                self.check_alive(container).await?;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A container that has ended will never listen; its exit says why.
    async fn check_alive(&self, container: &str) -> Result<(), ProvisionError> {
        let found = self
            .engine
            .inspect_container(container)
            .await
            .map_err(EngineError::into_provision)?;
        let reason = match found {
            Some(found) if found.phase.status() == InstanceStatus::Running => return Ok(()),
            Some(found) => format!(
                "the container ended at once (exit code {:?}{})",
                found.exit_code,
                found.error.map(|error| format!(", {error}")).unwrap_or_default()
            ),
            None => "the container ended at once and is gone".to_owned(),
        };
        Err(ProvisionError::Failed {
            provider: PROVIDER.to_owned(),
            reason,
            source: None,
        })
    }

    async fn greet_by_relay(
        &self,
        id: &InstanceId,
        key: &Key,
        dial: Arc<DialRelay>,
        plan: Plan,
    ) -> Result<Place, ProvisionError> {
        let until = Instant::now() + COMES_UP;
        loop {
            // The first tries may come before the supervisor listens: then the relay ends at once.
            let tried = match dial.dial().await {
                Ok(transport) => {
                    self.greet(id, key, transport, dial.clone(), plan.clone(), "exec_relay")
                        .await
                }
                Err(error) => Err(failed("the relay could not be started", error)),
            };
            match tried {
                Err(ProvisionError::Failed { .. }) if Instant::now() < until => {
                    self.check_alive(&dial.container).await?;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                result => return result,
            }
        }
    }

    async fn greet(
        &self,
        id: &InstanceId,
        key: &Key,
        transport: Transport,
        dial: Arc<dyn Dial>,
        plan: Plan,
        way: &str,
    ) -> Result<Place, ProvisionError> {
        let link = Link::establish(transport, dial, key.clone(), 1)
            .await
            .map_err(|error| {
                let reason = error.to_string();
                ProvisionError::Failed {
                    provider: PROVIDER.to_owned(),
                    reason,
                    source: Some(Box::new(error)),
                }
            })?;
        let mut config = self.config.clone();
        // What the container itself runs as cannot be taken on again, and need not be.
        config.user = plan.command_user.clone();
        if let Some(problem) = link.greeting().problem {
            return Err(place_error(PROVIDER, &config, &plan.workdir, problem));
        }
        let instance = self.describe(id, &link, &plan, way);
        Ok(Place {
            instance,
            config,
            link,
        })
    }

    fn describe(&self, id: &InstanceId, link: &Link, plan: &Plan, way: &str) -> ComputeInstance {
        let image = self.config.image.as_deref().unwrap_or(DEFAULT_IMAGE);
        let mut metadata = serde_json::Map::new();
        metadata.insert("container".to_owned(), plan.name.clone().into());
        metadata.insert("image".to_owned(), image.into());
        metadata.insert("image_id".to_owned(), self.image.id.clone().into());
        metadata.insert("workdir".to_owned(), plan.workdir.clone().into());
        metadata.insert("transport".to_owned(), way.into());
        metadata.insert("engine".to_owned(), self.facts.version.clone().into());
        metadata.insert("supervisor_pid".to_owned(), link.greeting().pid.into());
        metadata.insert("detached".to_owned(), self.config.detached.into());
        metadata.insert("owner_pid".to_owned(), std::process::id().into());
        if !plan.consented.is_empty() {
            metadata.insert("weaker_isolation".to_owned(), plan.consented.clone().into());
        }
        ComputeInstance {
            id: id.clone(),
            provider: PROVIDER.to_owned(),
            status: InstanceStatus::Running,
            created_at: time::OffsetDateTime::now_utc(),
            isolation: self.isolation(plan),
            metadata,
        }
    }

    fn isolation(&self, plan: &Plan) -> Axes {
        let observed = match plan.usual {
            true => self.state.observed(PROVIDER, &self.facts.identity()),
            // Nobody has looked at one like this.
            false => Axes::UNKNOWN,
        };
        observed.weakened_by(plan.cleared)
    }

    fn record(&self, folder: &InstanceFolder, place: &Place) -> Result<(), ProvisionError> {
        let record = Record {
            instance: place.instance.clone(),
            owner: ProcessIdentity::current().map_err(|error| failed("this process", error))?,
            detached: self.config.detached,
            supervisor: None,
            commands: crate::adopt::CommandDefaults::of_detached(&self.config),
        };
        let _ = self.settings;
        folder
            .write_record(&record)
            .map_err(|error| failed("its record could not be written", error))
    }
}

/// The part of the folder that the container sees: its supervisor may run as any user there, so all may
/// write; on the host nobody gets past the folder above. The key is removed before anything else runs.
fn open_control(folder: &InstanceFolder, key: &Key) -> io::Result<()> {
    std::fs::set_permissions(folder.ctl(), std::fs::Permissions::from_mode(0o1777))?;
    let path = folder.ctl().join("key");
    crate::supervisor::write_private(&path, key.as_bytes())?;
    // Whoever the supervisor runs as has to remove it too, which a sticky folder leaves to its owner.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444))?;
    std::fs::set_permissions(folder.ctl(), std::fs::Permissions::from_mode(0o777))
}

/// `uid:gid` or `uid`, when the user is given in numbers.
fn numeric_owner(user: &str) -> Option<(u32, u32)> {
    let (uid, gid) = user.split_once(':').unwrap_or((user, "0"));
    Some((uid.parse().ok()?, gid.parse().ok()?))
}

/// The name of an instance's container.
pub fn name_of(id: &InstanceId) -> Option<String> {
    container_name(id)
}
