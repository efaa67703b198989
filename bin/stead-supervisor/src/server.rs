//! The poll loop: connections, children, clock, and the end.

use crate::args::Serve;
use crate::commands::Commands;
use crate::confined;
use crate::connection::{Connection, Host};
use crate::files::Files;
use crate::handshake::{Pending, Progress};
use crate::parking::Parking;
use crate::removal;
use rustix::process::{Signal, WaitOptions, WaitStatus};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stead_process::user::{self, User};
use stead_process::{Interest, MemoryWatch, Outbox, Part, Place, Poller, Token, TreeFactory};
use stead_sys::SignalFd;
use stead_wire::{ExitStatus, FromSupervisor, Key, LaunchStage, PlaceProblem, ToSupervisor};

/// Connections that have not proved the key, at once.
const MAX_PENDING: usize = 8;

/// How long the end may take once everything is killed.
const FAREWELL: Duration = Duration::from_secs(35);

/// What is told when somebody connects.
const LISTENER: Token = Token {
    key: 0,
    part: Part::Listener,
};

/// Serves one instance until it is shut down or its owner is gone.
pub fn serve(mut options: Serve) -> io::Result<()> {
    if options.guest {
        // First of all: the standard library remembers which calls there are.
        stead_confine::enforce::restrict_guest().map_err(|failed| failed.source)?;
    }
    stead_sys::cloexec_inherited();
    stead_sys::reset_dispositions();
    stead_sys::block_all_signals();
    // Failing only means that we lead a session already.
    let _ = rustix::process::setsid();
    // What is named by a path of the host is opened before that path means something else.
    let key = read_key(&options)?;
    let listener = listen(&options)?;
    match options.plan.take() {
        Some(plan) => confined::enter(&plan, &mut options)?,
        // Elsewhere than in a container nothing limits us as a whole.
        None if rustix::process::getpid().is_init() => options.memory = MemoryWatch::of_container(),
        None => {}
    }
    let by_a_process = options.stdin_connection;
    let mut server = Server::new(options, key, listener)?;
    if by_a_process {
        // It hears by the end of this stream that we are up; from here on only the socket speaks.
        let null = fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stderr(&null)?;
    }
    server.run()?;
    server.end();
    Ok(())
}

struct Server {
    options: Serve,
    key: Key,
    poller: Poller,
    signals: SignalFd,
    /// None while parked.
    listener: Option<UnixListener>,
    parking: Parking,
    host: Host,
    pending: Vec<Pending>,
    commands: Commands,
    files: Files,
    problem: Option<PlaceProblem>,
    epoch: u64,
    last_key: u32,
    /// Since when there is no host.
    alone_since: Option<Instant>,
    /// Set when the end has begun.
    ending: Option<Instant>,
}

impl Server {
    fn new(mut options: Serve, key: Key, listener: UnixListener) -> io::Result<Self> {
        // Nobody in the place may look into our memory: the key is in it.
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
        // Where we are PID 1 this is so already.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let first = if options.stdin_connection {
            Some(adopt_stdin()?)
        } else {
            None
        };
        let poller = Poller::new()?;
        let signals = SignalFd::new(
            &[
                Signal::CHILD,
                Signal::TERM,
                Signal::INT,
                Signal::HUP,
                Signal::USR1,
            ]
            .map(Signal::as_raw),
        )?;
        poller.add(
            &signals,
            Token {
                key: 0,
                part: Part::Signals,
            },
            Interest::Read,
        )?;
        poller.add(&listener, LISTENER, Interest::Read)?;
        let (place, user, problem) = prepare_place(&options);
        let trees = TreeFactory::new(options.tree_mode(), &options.instance)?
            .watching(std::mem::take(&mut options.memory));
        let mut server = Self {
            key,
            poller,
            signals,
            listener: Some(listener),
            parking: Parking::new(&options.socket),
            host: Host::default(),
            pending: Vec::new(),
            commands: Commands::new(place, trees),
            files: Files::new(user.as_ref()),
            problem,
            epoch: 0,
            last_key: 0,
            alone_since: Some(Instant::now()),
            ending: None,
            options,
        };
        server.note_cgroup();
        if let Some(stream) = first {
            server.add_connection(stream);
        }
        Ok(server)
    }

    /// Leaves the name of our cgroup for whoever has to clean up after us.
    fn note_cgroup(&self) {
        if let (Some(cgroup), Some(directory)) =
            (self.commands.trees().cgroup(), self.options.socket.parent())
        {
            // Only a help: without it the cgroup is found by its name.
            let _ = fs::write(directory.join("cgroup"), cgroup.as_os_str().as_bytes());
        }
    }

    fn new_key(&mut self) -> u32 {
        self.last_key += 1;
        self.last_key
    }

    fn run(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        while !self.is_over() {
            let timeout = self
                .next_wake()
                .map(|at| at.saturating_duration_since(Instant::now()));
            self.poller.wait(timeout, &mut ready)?;
            for token in &ready {
                self.dispatch(*token)?;
            }
            self.commands.tick(&self.poller, &mut self.host);
            self.drop_stale_connections();
            self.check_owner();
            if self.parking.is_over() {
                self.unpark()?;
            }
            self.flush_host();
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        match self.ending {
            Some(since) => self.commands.all_gone() || since + FAREWELL <= Instant::now(),
            None => false,
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let owner = self
            .options
            .owner_grace
            .zip(self.alone_since)
            .map(|(grace, since)| since + grace)
            .filter(|_| self.listener.is_some());
        let pending = self.pending.iter().map(|pending| pending.deadline).min();
        let ending = self.ending.map(|since| since + FAREWELL);
        [
            owner.filter(|_| self.ending.is_none()),
            pending,
            ending,
            self.parking.wake_at(),
            self.commands.wake_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn dispatch(&mut self, token: Token) -> io::Result<()> {
        match token.part {
            Part::Listener => self.accept(),
            Part::Signals => self.on_signals()?,
            Part::Connection => self.on_connection(token.key),
            Part::Stdout | Part::Stderr | Part::Stdin | Part::Leader => {
                self.commands
                    .ready(token.key, token.part, &self.poller, &mut self.host);
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        while let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept) {
            self.add_connection(stream);
        }
    }

    fn add_connection(&mut self, stream: UnixStream) {
        if self.pending.len() >= MAX_PENDING {
            // The oldest has had the most time; a real host proves itself at once.
            self.pending.remove(0);
        }
        let key = self.new_key();
        if let Ok(connection) = Connection::new(stream, key, &self.poller) {
            self.pending.push(Pending::new(connection));
        }
    }

    fn on_connection(&mut self, key: u32) {
        if let Some(at) = self
            .pending
            .iter()
            .position(|pending| pending.connection.key() == key)
        {
            self.on_pending(at);
        } else if let Some(connection) = self.host.0.as_mut().filter(|connection| connection.key() == key) {
            connection.fill();
            self.on_host_frames();
            self.commands.flush(&self.poller, &mut self.host);
        }
    }

    fn on_pending(&mut self, at: usize) {
        let pending = &mut self.pending[at];
        pending.connection.fill();
        let progress = pending.advance(&self.key, self.epoch);
        pending.connection.flush(&self.poller);
        match progress {
            Progress::Waiting => {}
            Progress::Failed => drop(self.pending.remove(at)),
            Progress::Proved(epoch) => {
                let connection = self.pending.remove(at).connection;
                self.welcome(connection, epoch);
            }
        }
    }

    /// The newer connection fences the older: that one is closed and what it would still say is not read.
    fn welcome(&mut self, mut connection: Connection, epoch: u64) {
        connection.accept_large_frames();
        self.epoch = epoch;
        self.alone_since = None;
        self.files.close_all();
        let welcome = FromSupervisor::Welcome {
            tree: self.commands.trees().tracking(),
            pid: u32::try_from(rustix::process::getpid().as_raw_nonzero().get()).unwrap_or(0),
            problem: self.problem,
            commands: self.commands.reports(),
        };
        connection.send(&welcome, &[]);
        self.host = Host(Some(connection));
        // Frames that came together with the proof.
        self.on_host_frames();
        self.commands.flush(&self.poller, &mut self.host);
    }

    fn on_host_frames(&mut self) {
        while let Some(frame) = self.host.0.as_mut().and_then(Connection::next_frame) {
            let good = match frame.message::<ToSupervisor>() {
                Ok(message) => self.on_message(message, &frame.body),
                Err(_) => false,
            };
            if !good && let Some(connection) = &mut self.host.0 {
                connection.give_up();
            }
        }
    }

    /// Does what the host says; `false` when it breaks the protocol.
    fn on_message(&mut self, message: ToSupervisor, body: &[u8]) -> bool {
        let (poller, host, commands) = (&self.poller, &mut self.host, &mut self.commands);
        match message {
            ToSupervisor::Hello { .. } | ToSupervisor::Proof { .. } => return false,
            ToSupervisor::Ready => {
                if let Some(connection) = &mut host.0 {
                    connection.set_ready();
                }
            }
            ToSupervisor::StartPart { id } => return commands.start_part(id, body),
            ToSupervisor::Start { id } => {
                commands.start(id, body, poller, host);
            }
            ToSupervisor::Stdin { id, offset } => {
                return commands
                    .by_id(id)
                    .is_none_or(|command| command.stdin(offset, body, poller, host));
            }
            ToSupervisor::StdinEnd { id, offset } => {
                return commands
                    .by_id(id)
                    .is_none_or(|command| command.stdin_end(offset, poller, host));
            }
            ToSupervisor::Ack { id, stream, next } => commands.acknowledge(id, stream, next, poller, host),
            ToSupervisor::Signal { id, signal, target } => {
                if let Some(command) = commands.by_id(id) {
                    command.signal(signal.into(), target);
                }
            }
            ToSupervisor::Resize { id, size } => {
                if let Some(command) = commands.by_id(id) {
                    command.resize(size);
                }
            }
            ToSupervisor::Cancel { id, grace_ms } => {
                commands.cancel(id, Duration::from_millis(grace_ms), poller, host);
            }
            ToSupervisor::Release { id } => {
                if let Some(command) = commands.by_id(id) {
                    command.release();
                }
            }
            ToSupervisor::File { tag, request } => {
                let (answer, content) = self.files.answer(request, body);
                host.send(&FromSupervisor::File { tag, answer }, &content);
            }
            ToSupervisor::Ping { tag } => host.send(&FromSupervisor::Pong { tag }, &[]),
            ToSupervisor::Shutdown => self.begin_end(true),
        }
        true
    }

    fn on_signals(&mut self) -> io::Result<()> {
        let mut asked_to_end = false;
        while let Some(signal) = self.signals.next_signal()? {
            if signal == Signal::USR1.as_raw() {
                self.park();
            } else {
                asked_to_end |= signal != Signal::CHILD.as_raw();
            }
        }
        self.reap();
        if asked_to_end {
            self.begin_end(false);
        }
        Ok(())
    }

    /// Waits for every child that ended: ours, and what fell to us.
    fn reap(&mut self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_nonzero().get();
                    if let Some(status) = exit_status(status) {
                        self.commands
                            .child_ended(pid, status, &self.poller, &mut self.host);
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// `asked` by the host.
    fn begin_end(&mut self, asked: bool) {
        if self.ending.is_none() {
            self.ending = Some(Instant::now());
            self.commands.shut_down(asked, &self.poller, &mut self.host);
        }
    }

    fn drop_stale_connections(&mut self) {
        let now = Instant::now();
        self.pending
            .retain(|pending| pending.deadline > now && !pending.connection.is_broken());
        if self.host.0.as_ref().is_some_and(Connection::is_broken) {
            self.host.0 = None;
            self.files.close_all();
            self.alone_since = Some(now);
        }
    }

    /// Lets go of everything of the host. What was not acknowledged is kept for whoever connects next.
    fn park(&mut self) {
        if !self.parking.is_wanted() || self.listener.is_none() {
            return;
        }
        self.flush_host();
        self.host.0 = None;
        self.files.close_all();
        self.pending.clear();
        self.listener = None;
        self.parking.begin();
        // Last: by this the host sees that it is done.
        let _ = fs::remove_file(&self.options.socket);
    }

    fn unpark(&mut self) -> io::Result<()> {
        let listener = listen(&self.options)?;
        self.poller.add(&listener, LISTENER, Interest::Read)?;
        self.listener = Some(listener);
        self.alone_since = Some(Instant::now());
        Ok(())
    }

    /// An owner that is gone for too long does not come back.
    fn check_owner(&mut self) {
        if let (Some(grace), Some(since), true) = (
            self.options.owner_grace,
            self.alone_since,
            self.listener.is_some(),
        ) && since + grace <= Instant::now()
        {
            self.begin_end(false);
        }
    }

    fn flush_host(&mut self) {
        if let Some(connection) = &mut self.host.0 {
            connection.flush(&self.poller);
        }
    }

    /// Says farewell and removes what is ours.
    fn end(&mut self) {
        self.host.send(&FromSupervisor::Bye, &[]);
        // A moment for the last frames: the host waits for them.
        let until = Instant::now() + Duration::from_secs(1);
        self.flush_host();
        while self
            .host
            .0
            .as_ref()
            .is_some_and(|c| !c.is_flushed() && !c.is_broken())
            && Instant::now() < until
        {
            let mut ready = Vec::new();
            let _ = self.poller.wait(Some(Duration::from_millis(20)), &mut ready);
            self.flush_host();
        }
        let _ = fs::remove_file(&self.options.socket);
        // What withstood is for `prune`, which knows it by the folder.
        if let Some(path) = self
            .options
            .remove_at_end
            .as_ref()
            .filter(|_| self.commands.all_gone())
        {
            removal::remove(path);
        }
    }
}

fn exit_status(status: WaitStatus) -> Option<ExitStatus> {
    if let Some(code) = status.exit_status() {
        return u8::try_from(code).ok().map(ExitStatus::Code);
    }
    let signal = u8::try_from(status.terminating_signal()?).ok()?;
    Some(ExitStatus::Signal {
        signal,
        core_dumped: status.as_raw() & 0x80 != 0,
    })
}

fn read_key(options: &Serve) -> io::Result<Key> {
    let bytes = fs::read(&options.key_file)?;
    let key = <[u8; 32]>::try_from(bytes).map_err(|_| io::Error::other("the key file has not 32 bytes"))?;
    if options.unlink_key {
        fs::remove_file(&options.key_file)?;
    }
    Ok(Key::new(key))
}

/// Takes standard input as a connection, and puts nothing in its place.
fn adopt_stdin() -> io::Result<UnixStream> {
    let connection = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(UnixStream::from(connection))
}

fn listen(options: &Serve) -> io::Result<UnixListener> {
    // A restarted place finds the socket of its former life.
    let _ = fs::remove_file(&options.socket);
    let listener = UnixListener::bind(&options.socket)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&options.socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// The environment, directory and user that commands start from, and what is wrong with them.
fn prepare_place(options: &Serve) -> (Place, Option<User>, Option<PlaceProblem>) {
    let env = std::env::vars_os()
        .map(|(name, value)| (name.into_vec(), value.into_vec()))
        .collect();
    let place = Place {
        env,
        cwd: options.workdir.as_os_str().as_bytes().to_vec(),
        user: options.user.clone(),
    };
    let user = match options.user.as_deref().map(user::resolve) {
        None => None,
        Some(Ok(user)) => Some(user),
        Some(Err(_)) => {
            let errno = rustix::io::Errno::NOENT.raw_os_error();
            return (
                place,
                None,
                Some(PlaceProblem {
                    stage: LaunchStage::User,
                    errno,
                }),
            );
        }
    };
    let problem = prepare_workdir(&options.workdir, user.as_ref())
        .err()
        .map(|error| PlaceProblem {
            stage: LaunchStage::Cwd,
            errno: error
                .raw_os_error()
                .unwrap_or(rustix::io::Errno::IO.raw_os_error()),
        });
    (place, user, problem)
}

/// Makes the working directory when it is missing. One that is there and empty and belongs to root, as
/// engines make it, is given to the user; a directory with content stays as it is.
fn prepare_workdir(workdir: &PathBuf, user: Option<&User>) -> io::Result<()> {
    let files = Files::new(user);
    files.make_directory(workdir, 0o755, true)?;
    let metadata = fs::metadata(workdir)?;
    let owned_by_root = std::os::unix::fs::MetadataExt::uid(&metadata) == 0;
    if let Some(user) = user
        && owned_by_root
        && fs::read_dir(workdir)?.next().is_none()
    {
        // A read-only root keeps its owner; the user then reads only.
        let _ = std::os::unix::fs::chown(workdir, Some(user.identity.uid), Some(user.identity.gid));
    }
    Ok(())
}
