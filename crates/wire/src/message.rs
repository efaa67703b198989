//! The messages of generation 1.
//!
//! Bulk bytes travel in the frame's body, named with each message that has one. Byte strings that name
//! things (arguments, environment, paths) are bytes, not text: a place's names need not be UTF-8.

use serde::{Deserialize, Serialize};

/// Names one command of an instance. The host chooses it; asking again with the same id joins the
/// one execution.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CommandId(pub [u8; 16]);

impl std::fmt::Debug for CommandId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// An output stream of a command. With a terminal everything is `Stdout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Both streams, in the order in which ties are broken.
    pub const ALL: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

    /// 0 or 1, for arrays with a slot for each stream.
    pub fn index(self) -> usize {
        match self {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
        }
    }
}

/// The largest content of one [`FromSupervisor::Output`].
pub const MAX_CHUNK: usize = 64 * 1024;

/// How many bytes of one stream the supervisor sends beyond what the host acknowledged. When they are
/// out, it stops to read the pipe, and the program waits.
pub const OUTPUT_WINDOW: usize = 512 * 1024;

/// How many bytes of standard input the host may send beyond what the program has taken.
pub const STDIN_WINDOW: u64 = 512 * 1024;

/// The most that the description of one command may take, in several frames.
pub const MAX_COMMAND: usize = 4 << 20;

/// The most bytes that one [`FileRequest::Read`] gives and one [`FileRequest::Write`] takes.
pub const MAX_FILE_CHUNK: usize = 512 * 1024;

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub cols: u16,
}

/// What becomes of the rest of a command's tree when its leader exits by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Descendants {
    /// It is killed before the exit is reported.
    Sweep,
    /// It lives until it ends or the instance goes.
    Keep,
}

/// What a command's standard input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinMode {
    /// Empty and closed.
    Empty,
    /// Fed by [`ToSupervisor::Stdin`].
    Stream,
}

/// The program of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// Text for the place's `/bin/sh -c`.
    Shell(Vec<u8>),
    /// Executed as it is; the first is looked up in `PATH` when it has no slash.
    Argv(Vec<Vec<u8>>),
}

/// Everything that the supervisor must know to start one command. It travels postcard-encoded in the
/// bodies of [`ToSupervisor::StartPart`] and [`ToSupervisor::Start`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSpec {
    /// The program.
    pub program: Program,
    /// Working directory; `None` is the instance's.
    pub cwd: Option<Vec<u8>>,
    /// Set on top of the instance's environment, in order; a later one of the same name wins.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// `name`, `uid`, `name:group` or `uid:gid`; `None` is the instance's.
    pub user: Option<String>,
    /// Standard input.
    pub stdin: StdinMode,
    /// A terminal of this size instead of pipes.
    pub tty: Option<TerminalSize>,
    /// Milliseconds until the tree is ended; `None` is never.
    pub timeout_ms: Option<u64>,
    /// Milliseconds between SIGTERM and SIGKILL.
    pub grace_ms: u64,
    /// What becomes of descendants.
    pub descendants: Descendants,
    /// Bytes of each stream that are sent; the rest is read, counted and dropped. `None` sends all.
    pub output_limit: Option<u64>,
}

/// Whom a signal reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalTarget {
    /// The first process of the command.
    Leader,
    /// The leader's process group.
    Group,
}

/// From the host to the supervisor. The first two are the handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// First frame of a connection.
    Hello {
        /// Oldest generation that the host speaks.
        oldest: u16,
        /// Newest generation that the host speaks.
        newest: u16,
        /// The host's nonce.
        nonce: [u8; 32],
        /// The owner epoch; one below the highest that was ever proved is refused for good.
        epoch: u64,
    },
    /// Third frame.
    Proof {
        /// See [`crate::proof`].
        proof: [u8; 32],
    },
    /// The host has said what it has of each command; from here on output is sent. Until then it waits,
    /// so that a broken connection does not bring again what is there already.
    Ready,
    /// A part of a long [`CommandSpec`], in the body; more follows.
    StartPart {
        /// The command it is about.
        id: CommandId,
    },
    /// The last part of a [`CommandSpec`], in the body. Starts the command, or joins it when the id was
    /// started already; the same id with another description is refused.
    Start {
        /// The command to start.
        id: CommandId,
    },
    /// Standard input, in the body.
    Stdin {
        /// The command it is for.
        id: CommandId,
        /// Bytes of the stream before this; what was accepted already is skipped.
        offset: u64,
    },
    /// The end of standard input; on a terminal VEOF is typed.
    StdinEnd {
        /// The command it is for.
        id: CommandId,
        /// Length of the whole stream.
        offset: u64,
    },
    /// All chunks of the stream below `next` are safe with the host.
    Ack {
        /// The command.
        id: CommandId,
        /// The stream.
        stream: Stream,
        /// First sequence that is not acknowledged.
        next: u64,
    },
    /// Sends a signal once.
    Signal {
        /// The command.
        id: CommandId,
        /// Signal number, 1 to 64.
        signal: u8,
        /// Whom it reaches.
        target: SignalTarget,
    },
    /// Changes the size of the command's terminal.
    Resize {
        /// The command.
        id: CommandId,
        /// The new size.
        size: TerminalSize,
    },
    /// Ends the command's tree: SIGTERM, then SIGKILL after the grace. Also an id that was not started
    /// yet: a later `Start` of it is then refused.
    Cancel {
        /// The command.
        id: CommandId,
        /// Milliseconds; 0 is SIGKILL at once.
        grace_ms: u64,
    },
    /// The host has the outcome and needs nothing more of this command.
    Release {
        /// The command.
        id: CommandId,
    },
    /// Something with a file.
    File {
        /// Comes back with the answer.
        tag: u64,
        /// What.
        request: FileRequest,
    },
    /// Answered by [`FromSupervisor::Pong`] after everything before it was handled.
    Ping {
        /// Comes back.
        tag: u64,
    },
    /// Ends every tree and then the supervisor.
    Shutdown,
}

/// What can be done with files. Paths are absolute in the place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    /// Answered by [`FileAnswer::Entry`].
    Stat {
        /// The path.
        path: Vec<u8>,
        /// Whether a link at the end is followed.
        follow: bool,
    },
    /// Names of a directory in byte order. Answered by [`FileAnswer::Entries`].
    List {
        /// The directory.
        path: Vec<u8>,
        /// Only names behind this one; empty is from the start.
        after: Vec<u8>,
        /// At most so many, 1 to 1000.
        limit: u32,
    },
    /// Opens a regular file to read. Answered by [`FileAnswer::Opened`].
    OpenRead {
        /// The file.
        path: Vec<u8>,
    },
    /// Reads at most [`MAX_FILE_CHUNK`] bytes. Answered by [`FileAnswer::Content`]; empty is the end.
    Read {
        /// From `Opened`.
        handle: u64,
        /// Where to begin.
        offset: u64,
        /// How many at most.
        length: u32,
    },
    /// Opens a temporary file beside the path. Answered by [`FileAnswer::Opened`].
    OpenWrite {
        /// The file that [`FileRequest::Commit`] will put in place.
        path: Vec<u8>,
        /// Permission bits.
        mode: u32,
        /// Whether missing directories above are made.
        create_parents: bool,
    },
    /// Appends the body. Answered by [`FileAnswer::Done`].
    Write {
        /// From `Opened`.
        handle: u64,
    },
    /// Makes the written file appear at its path at once, old or new and never half. `Done`.
    Commit {
        /// From `Opened`.
        handle: u64,
        /// Seconds since 1970 for the modification time.
        mtime: Option<i64>,
    },
    /// Gives up a handle; a written file that was not committed is removed. `Done`.
    Close {
        /// From `Opened`.
        handle: u64,
    },
    /// `Done`, also when the directory is there already.
    MakeDirectory {
        /// The directory.
        path: Vec<u8>,
        /// Permission bits.
        mode: u32,
        /// Whether missing directories above are made.
        parents: bool,
    },
    /// `Done`. An existing file or link at `path` is replaced.
    MakeSymlink {
        /// Where the link is made.
        path: Vec<u8>,
        /// What it says.
        target: Vec<u8>,
    },
    /// Removes one file, link or empty directory, following no link. `Done`.
    Remove {
        /// What to remove.
        path: Vec<u8>,
    },
}

/// Kinds of directory entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block or character device.
    Device,
}

/// One directory entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Last component of the path.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// Length in bytes.
    pub size: u64,
    /// Permission bits, without the type.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub mtime: i64,
    /// What a symbolic link says.
    pub link_target: Option<Vec<u8>>,
}

/// Answers to [`FileRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAnswer {
    /// It was done.
    Done,
    /// One entry.
    Entry(FileEntry),
    /// A page of entries; fewer than asked for is the end.
    Entries(Vec<FileEntry>),
    /// A handle, with the entry for reads.
    Opened {
        /// The handle.
        handle: u64,
        /// Length of the file when it was opened.
        size: u64,
    },
    /// The body has the content.
    Content,
    /// It could not be done.
    Failed {
        /// The system's error number.
        errno: i32,
    },
}

/// Why a command could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaunchStage {
    /// The user or group is not known here, or may not be taken on.
    User,
    /// The working directory cannot be entered.
    Cwd,
    /// The program cannot be executed.
    Exec,
    /// The process, its pipes, its terminal or its cgroup could not be made.
    Setup,
}

/// The instance's own user or working directory cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceProblem {
    /// What fails.
    pub stage: LaunchStage,
    /// The system's error number.
    pub errno: i32,
}

/// How a command's tree is kept together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeTracking {
    /// A cgroup of version 2 for each command.
    CgroupV2,
    /// A freezer cgroup of version 1 for each command.
    CgroupV1,
    /// A subreaper for each command.
    Reaper,
}

/// Why the supervisor ended a command, when it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopCause {
    /// Its time was over.
    Timeout,
    /// The host asked.
    Cancel,
    /// The supervisor itself was told to end, by whoever can send it a signal.
    ShutDown,
}

/// How the leader of a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It exited by itself.
    Code(u8),
    /// A signal ended it.
    Signal {
        /// The signal.
        signal: u8,
        /// Whether a core was dumped.
        core_dumped: bool,
    },
    /// The process that watched the leader was itself killed; how the leader ended is not known.
    Unknown,
}

/// The final word on a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// How the leader ended.
    pub status: ExitStatus,
    /// Set when our signal came before the leader's own exit.
    pub stopped: Option<StopCause>,
    /// Microseconds from the successful exec to the end of the leader.
    pub duration_us: u64,
    /// Whether the leader's tree is confirmed gone. False with [`Descendants::Keep`] while some live,
    /// and when the tree withstood SIGKILL.
    pub tree_gone: bool,
    /// Whether the kernel killed a process of the place for lack of memory while the command ran: the place's memory
    /// is limited as a whole, so that with several commands each of them is told.
    pub oom_killed: bool,
}

/// What the supervisor knows of a command at the moment of a [`FromSupervisor::Welcome`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReport {
    /// The command.
    pub id: CommandId,
    /// SHA-256 of its encoded [`CommandSpec`].
    pub fingerprint: [u8; 32],
    /// First sequence of each stream that is not acknowledged.
    pub unacknowledged: [u64; 2],
    /// Bytes of standard input taken so far.
    pub stdin_accepted: u64,
    /// Set when it has ended.
    pub exit: Option<Exit>,
}

/// Why a request was refused. The connection stays usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The id was started with another description.
    OtherFingerprint,
    /// The id was cancelled before it was started.
    CancelledBefore,
    /// The description does not parse, is too long or breaks a rule.
    BadCommand,
    /// The supervisor is shutting down.
    ShuttingDown,
    /// Too many commands at once.
    TooMany,
}

/// From the supervisor to the host. The first two are the handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// Second frame of a connection.
    Challenge {
        /// The generation to speak.
        generation: u16,
        /// The supervisor's nonce.
        nonce: [u8; 32],
        /// See [`crate::proof`].
        proof: [u8; 32],
    },
    /// Fourth frame: the host is accepted and any older connection is closed.
    Welcome {
        /// How trees are kept together here.
        tree: TreeTracking,
        /// Process id of the supervisor, as it sees itself.
        pid: u32,
        /// What keeps commands of this instance from being started, if anything does.
        problem: Option<PlaceProblem>,
        /// Commands that were not released.
        commands: Vec<CommandReport>,
    },
    /// The generations do not overlap; the connection is closed.
    Incompatible {
        /// Oldest generation of the supervisor.
        oldest: u16,
        /// Newest generation of the supervisor.
        newest: u16,
    },
    /// The program was executed.
    Started {
        /// The command.
        id: CommandId,
        /// The leader, as the supervisor sees it.
        pid: u32,
    },
    /// Nothing runs.
    LaunchFailed {
        /// The command.
        id: CommandId,
        /// What failed.
        stage: LaunchStage,
        /// The system's error number.
        errno: i32,
    },
    /// Refused; nothing was done.
    Refused {
        /// The command.
        id: CommandId,
        /// Why.
        reason: Refusal,
    },
    /// Output, in the body.
    Output {
        /// The command.
        id: CommandId,
        /// The stream.
        stream: Stream,
        /// Number of the chunk in its stream, from 0.
        sequence: u64,
        /// Microseconds since 1970 when it was read; never decreases within a stream.
        observed_at_us: u64,
    },
    /// No more output of this stream will come.
    StreamEnd {
        /// The command.
        id: CommandId,
        /// The stream.
        stream: Stream,
        /// The sequence that the next chunk would have had.
        next: u64,
        /// All bytes that the program wrote and we read, also those over the limit.
        total_bytes: u64,
    },
    /// Only with [`Descendants::Keep`], when the leader has ended and descendants still hold the
    /// stream: all that was written before the leader's end is below `next`.
    StreamMark {
        /// The command.
        id: CommandId,
        /// The stream.
        stream: Stream,
        /// The sequence that the next chunk will have.
        next: u64,
        /// Bytes so far, also those over the limit.
        total_bytes: u64,
    },
    /// So much of standard input was taken by the program.
    StdinTaken {
        /// The command.
        id: CommandId,
        /// Bytes from the start of the stream.
        through: u64,
    },
    /// The program reads no more.
    StdinClosed {
        /// The command.
        id: CommandId,
    },
    /// The leader ended and, with [`Descendants::Sweep`] or after a stop, its tree with it. It does not
    /// wait for output that the host has not made room for: the streams end by themselves.
    Exited {
        /// The command.
        id: CommandId,
        /// The final word.
        exit: Exit,
    },
    /// The last process of a kept tree is gone.
    TreeGone {
        /// The command.
        id: CommandId,
    },
    /// Answer to [`ToSupervisor::File`]; the body of `Content` is the content.
    File {
        /// From the request.
        tag: u64,
        /// The answer.
        answer: FileAnswer,
    },
    /// Answer to [`ToSupervisor::Ping`].
    Pong {
        /// From the request.
        tag: u64,
    },
    /// The last frame: every tree is gone.
    Bye,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_hex() {
        assert_eq!(format!("{:?}", CommandId([0xab; 16])), "ab".repeat(16));
    }
}
