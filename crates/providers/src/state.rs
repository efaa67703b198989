//! The host's folder of live instances: how another process finds them, and what is left when one dies.
//!
//! ```text
//! STATE/supervisor-HASH            the program
//! STATE/observed/PROVIDER.json     what was seen of its isolation
//! STATE/instances/ID/instance.json what it is, who owns it, and what commands start from
//! STATE/instances/ID/options       what its supervisor was started with, where that is a process of this host
//! STATE/instances/ID/key           the key, for processes of the same user
//! STATE/instances/ID/kept         what the keeper of a place does that a runtime makes
//! STATE/instances/ID/parked       there while the memory of such a place is in an image
//! STATE/instances/ID/ctl/          socket of the supervisor; the only part that a place may see
//! STATE/instances/ID/work          default working directory of `local`
//! ```
//! STATE is `$STEAD_STATE_DIR`, else `$XDG_RUNTIME_DIR/stead`, else `/run/stead` for root and
//! `/tmp/stead-UID` for others. It belongs to one user, with mode 0700.

use crate::adopt::CommandDefaults;
use crate::supervisor::write_private;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use stead_types::{ComputeInstance, InstanceId};
use stead_wire::Key;

/// Bytes of the path of STATE: a socket's path has at most 107, and ours end in `/instances/ID/ctl/s`.
const LONGEST_ROOT: usize = 107 - "/instances/".len() - 36 - "/ctl/s".len();

/// Names one process of this host for good: a process id alone is used again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id.
    pub pid: i32,
    /// Clock ticks from boot to its start.
    pub start_time: u64,
    /// The boot in which that counts.
    pub boot_id: String,
}

impl ProcessIdentity {
    /// This process.
    pub fn current() -> io::Result<Self> {
        Self::of(i32::try_from(std::process::id()).map_err(io::Error::other)?)
    }

    /// A running process.
    pub fn of(pid: i32) -> io::Result<Self> {
        let start_time = start_time(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            pid,
            start_time,
            boot_id: boot_id()?,
        })
    }

    /// Whether it is still alive. A zombie is not.
    pub fn is_alive(&self) -> bool {
        boot_id().is_ok_and(|boot| boot == self.boot_id) && start_time(self.pid) == Some(self.start_time)
    }
}

/// Identifies the running boot, which no process outlives.
pub fn boot_id() -> io::Result<String> {
    static READ: OnceLock<String> = OnceLock::new();
    if let Some(known) = READ.get() {
        return Ok(known.clone());
    }
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(READ.get_or_init(|| id.trim().to_owned()).clone())
}

/// Start of a process that is no zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows its last ')' is plain.
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(stat.get(after + 1..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?;
    // Field 22 of the file; the state is field 3.
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start)
}

/// What is known of an instance beside the provider's own view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The instance.
    pub instance: ComputeInstance,
    /// Who provisioned it.
    pub owner: ProcessIdentity,
    /// Whether it outlives its owner.
    pub detached: bool,
    /// The supervisor, where it is a process of this host.
    pub supervisor: Option<ProcessIdentity>,
    /// For whoever adopts it; not kept of an instance that goes with its owner.
    #[serde(default)]
    pub commands: CommandDefaults,
}

/// The folder of all instances of this user.
#[derive(Debug, Clone)]
pub struct State {
    root: PathBuf,
}

/// The folder of one instance.
#[derive(Debug, Clone)]
pub struct InstanceFolder {
    path: PathBuf,
}

impl State {
    /// The folder that the environment names; made when it is missing.
    pub fn open_default() -> io::Result<Self> {
        let own = rustix::process::geteuid();
        let root = match (
            std::env::var_os("STEAD_STATE_DIR"),
            std::env::var_os("XDG_RUNTIME_DIR"),
        ) {
            (Some(named), _) if !named.is_empty() => PathBuf::from(named),
            (_, Some(runtime)) if !runtime.is_empty() => PathBuf::from(runtime).join("stead"),
            _ if own.is_root() => PathBuf::from("/run/stead"),
            _ => PathBuf::from(format!("/tmp/stead-{}", own.as_raw())),
        };
        Self::open(root)
    }

    /// A folder of one's choice; made when it is missing. Refused when another user could change it.
    pub fn open(root: PathBuf) -> io::Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(root.join("instances"))?;
        let found = fs::symlink_metadata(&root)?;
        let own = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
            let what = format!("{} is not a directory of this user alone", root.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let root = root.canonicalize()?;
        let length = root.as_os_str().len();
        if length > LONGEST_ROOT {
            let what = format!(
                "the path {} has {length} bytes, and with more than {LONGEST_ROOT} no socket fits below it",
                root.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Self { root })
    }

    /// The folder itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the supervisor is, put there when it is missing.
    pub fn supervisor(&self) -> io::Result<PathBuf> {
        crate::supervisor::install(&self.root)
    }

    /// Where the folder of a new instance is going to be.
    pub fn folder(&self, id: &InstanceId) -> InstanceFolder {
        let path = self.root.join("instances").join(id.as_str());
        InstanceFolder { path }
    }

    /// Makes the folder of a new instance with its key.
    pub fn create(&self, id: &InstanceId, key: &Key) -> io::Result<InstanceFolder> {
        let folder = self.folder(id);
        let made = fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder.path)
            .and_then(|()| fs::create_dir(folder.ctl()))
            .and_then(|()| write_private(&folder.key_path(), key.as_bytes()));
        match made {
            Ok(()) => Ok(folder),
            Err(error) => {
                folder.remove()?;
                Err(error)
            }
        }
    }

    /// The folder of an instance, `None` when there is none. Ids that we cannot have made name none.
    pub fn find(&self, id: &InstanceId) -> Option<InstanceFolder> {
        if !id.is_generated() {
            return None;
        }
        let path = self.root.join("instances").join(id.as_str());
        path.is_dir().then_some(InstanceFolder { path })
    }

    /// The folders of all instances; what does not have a whole record yet is left out.
    pub fn instances(&self) -> io::Result<Vec<(InstanceFolder, Record)>> {
        let mut found = Vec::new();
        for folder in self.folders()? {
            match folder.record() {
                Ok(record) => found.push((folder, record)),
                // Just being made, or just being removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Folders without a record that are older than so many seconds: their maker died on the way.
    pub fn abandoned(&self, older_than: std::time::Duration) -> io::Result<Vec<InstanceFolder>> {
        let is_old = |folder: &InstanceFolder| {
            let modified = fs::metadata(&folder.path).and_then(|m| m.modified()).ok();
            modified
                .and_then(|at| at.elapsed().ok())
                .is_some_and(|age| age > older_than)
        };
        let folders = self.folders()?.into_iter();
        Ok(folders
            .filter(|folder| !folder.record_path().exists() && is_old(folder))
            .collect())
    }

    fn folders(&self) -> io::Result<Vec<InstanceFolder>> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(self.root.join("instances"))? {
            let entry = entry?;
            let id = InstanceId::new(entry.file_name().to_string_lossy());
            if id.is_generated() {
                folders.push(InstanceFolder { path: entry.path() });
            }
        }
        folders.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(folders)
    }
}

impl InstanceFolder {
    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The instance that it belongs to.
    pub fn id(&self) -> InstanceId {
        InstanceId::new(self.path.file_name().unwrap_or_default().to_string_lossy())
    }

    /// The part that the place may see.
    pub fn ctl(&self) -> PathBuf {
        self.path.join("ctl")
    }

    /// The supervisor's socket.
    pub fn socket(&self) -> PathBuf {
        self.ctl().join("s")
    }

    /// The default working directory of `local`.
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// The file with the key.
    pub fn key_path(&self) -> PathBuf {
        self.path.join("key")
    }

    /// There while the instance's memory is in an image and nothing of it runs.
    pub fn parked_path(&self) -> PathBuf {
        self.path.join("parked")
    }

    /// Whether it is parked.
    pub fn is_parked(&self) -> bool {
        self.parked_path().exists()
    }

    fn record_path(&self) -> PathBuf {
        self.path.join("instance.json")
    }

    /// The key.
    pub fn key(&self) -> io::Result<Key> {
        let bytes = fs::read(self.key_path())?;
        let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Key::new(bytes))
    }

    /// What the instance is.
    pub fn record(&self) -> io::Result<Record> {
        let bytes = fs::read(self.record_path())?;
        serde_json::from_slice(&bytes).map_err(io::Error::from)
    }

    /// Writes the record, whole or not at all.
    pub fn write_record(&self, record: &Record) -> io::Result<()> {
        let temporary = self.path.join(".instance.json");
        let _ = fs::remove_file(&temporary);
        write_private(&temporary, &serde_json::to_vec_pretty(record)?)?;
        fs::rename(temporary, self.record_path())
    }

    /// Writes what the supervisor that is started here is to read: its options, each with a zero byte behind it.
    pub fn write_options(&self, options: &[OsString]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for option in options {
            bytes.extend_from_slice(option.as_bytes());
            bytes.push(0);
        }
        write_private(&self.path.join("options"), &bytes)
    }

    /// Notes the cgroups that its supervisor makes outside of the place.
    pub fn write_groups(&self, groups: &[PathBuf]) -> io::Result<()> {
        if groups.is_empty() {
            return Ok(());
        }
        write_private(&self.path.join("groups.json"), &serde_json::to_vec(groups)?)
    }

    /// The cgroups that were noted.
    pub fn groups(&self) -> Vec<PathBuf> {
        let noted = fs::read(self.path.join("groups.json")).unwrap_or_default();
        serde_json::from_slice(&noted).unwrap_or_default()
    }

    /// The supervisor's cgroup, as it has noted it.
    pub fn cgroup(&self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let bytes = fs::read(self.ctl().join("cgroup")).ok()?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
    }

    /// Removes the folder; gone already is fine.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // What ran there may have taken away the rights over its own directories.
            Err(_) => {
                open_directories(&self.path);
                fs::remove_dir_all(&self.path)
            }
        }
    }
}

/// Gives us the rights over all directories below, following no link. What cannot be changed is told by whoever
/// removes it.
fn open_directories(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let is_directory = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    if !is_directory {
        return;
    }
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        open_directories(&entry.path());
    }
}

/// A new key.
pub fn new_key() -> io::Result<Key> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(Key::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_only_with_its_own_start() {
        let own = ProcessIdentity::current().unwrap();
        assert!(own.is_alive());
        assert!(
            !ProcessIdentity {
                start_time: own.start_time + 1,
                ..own.clone()
            }
            .is_alive()
        );
        assert!(
            !ProcessIdentity {
                boot_id: "another".into(),
                ..own
            }
            .is_alive()
        );
    }

    #[test]
    fn ids_that_are_paths_find_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path().join("state")).unwrap();
        let id = InstanceId::generate();
        assert!(state.find(&id).is_none());
        let folder = state.create(&id, &new_key().unwrap()).unwrap();
        assert_eq!(state.find(&id).unwrap().path(), folder.path());
        for bad in ["", ".", "..", "../instances", "x"] {
            assert!(state.find(&InstanceId::new(bad)).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_folder_is_removed_whatever_rights_its_contents_have() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path().join("state")).unwrap();
        let folder = state
            .create(&InstanceId::generate(), &new_key().unwrap())
            .unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o500)).unwrap();
        let deep = folder.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&outside, folder.path().join("a/link")).unwrap();
        for closed in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(folder.path().join(closed), fs::Permissions::from_mode(0o0)).unwrap();
        }
        open_directories(folder.path());
        assert_eq!(fs::metadata(&deep).unwrap().permissions().mode() & 0o777, 0o700);
        folder.remove().unwrap();
        assert!(!folder.path().exists());
        assert_eq!(
            fs::metadata(&outside).unwrap().permissions().mode() & 0o777,
            0o500,
            "no link was followed"
        );
    }

    #[test]
    fn a_path_in_which_no_socket_fits_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let open = |length: usize| {
            let used = dir.path().canonicalize().unwrap().as_os_str().len() + 1;
            State::open(dir.path().join("x".repeat(length - used)))
        };
        let fits = open(LONGEST_ROOT).unwrap();
        let folder = fits.create(&InstanceId::generate(), &new_key().unwrap()).unwrap();
        assert!(std::os::unix::net::UnixListener::bind(folder.socket()).is_ok());
        assert_eq!(
            open(LONGEST_ROOT + 1).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("state");
        assert!(State::open(root.clone()).is_ok());
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            State::open(root).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }
}
