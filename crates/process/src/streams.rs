//! Pipes or a terminal between a command and us.

use crate::command::LaunchFailed;
use std::io;
use std::os::fd::OwnedFd;
use stead_wire::{CommandSpec, StdinMode, TerminalSize};

/// The descriptors of a command: ours, and those that become the program's.
pub struct Streams {
    pub ours: [Option<OwnedFd>; 2],
    pub input: Option<OwnedFd>,
    pub terminal: Option<OwnedFd>,
    pub theirs: [OwnedFd; 3],
}

/// Opens them as the description says.
pub fn open_streams(spec: &CommandSpec) -> Result<Streams, LaunchFailed> {
    let opened = match spec.tty {
        Some(size) => open_terminal(size, spec.stdin),
        None => open_pipes(spec.stdin),
    };
    opened.map_err(|error| LaunchFailed::setup(&error))
}

fn open_pipes(stdin: StdinMode) -> io::Result<Streams> {
    use rustix::pipe::{PipeFlags, pipe_with};
    let (out_ours, out_theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    let (err_ours, err_theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    let (in_theirs, in_ours) = match stdin {
        StdinMode::Empty => (null()?, None),
        StdinMode::Stream => pipe_with(PipeFlags::CLOEXEC).map(|(read, write)| (read, Some(write)))?,
    };
    // Only our ends: the program's are its own.
    for fd in [Some(&out_ours), Some(&err_ours), in_ours.as_ref()]
        .into_iter()
        .flatten()
    {
        rustix::io::ioctl_fionbio(fd, true)?;
    }
    Ok(Streams {
        ours: [Some(out_ours), Some(err_ours)],
        input: in_ours,
        terminal: None,
        theirs: [in_theirs, out_theirs, err_theirs],
    })
}

fn null() -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    match open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => Ok(fd),
        // A place may have no /dev: the read end of a pipe without a writer is as empty.
        Err(_) => Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?.0),
    }
}

fn open_terminal(size: TerminalSize, stdin: StdinMode) -> io::Result<Streams> {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name.as_c_str(), flags, Mode::empty())?;
    rustix::termios::tcsetwinsize(&ours, window(size))?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    // Without a stream the terminal is silent, but it is there.
    let input = match stdin {
        StdinMode::Stream => Some(ours.try_clone()?),
        StdinMode::Empty => None,
    };
    let terminal = Some(ours.try_clone()?);
    let (second, third) = (theirs.try_clone()?, theirs.try_clone()?);
    Ok(Streams {
        ours: [Some(ours), None],
        input,
        terminal,
        theirs: [theirs, second, third],
    })
}

/// The size as the system takes it.
pub fn window(size: TerminalSize) -> rustix::termios::Winsize {
    rustix::termios::Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Whether nobody can read any more what is written there.
pub fn reader_is_gone(fd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(fd, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}
