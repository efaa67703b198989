//! Our own terminal: its size, and raw mode that is always undone.

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use stead::TerminalSize;

/// The size of our terminal; 24 by 80 when we have none.
pub fn size() -> TerminalSize {
    match tcgetwinsize(rustix::stdio::stdin()).or_else(|_| tcgetwinsize(rustix::stdio::stdout())) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => TerminalSize {
            rows: size.ws_row,
            cols: size.ws_col,
        },
        _ => TerminalSize { rows: 24, cols: 80 },
    }
}

/// Raw mode: what is typed reaches the command as it is. Undone when dropped.
#[derive(Debug)]
pub struct Raw(Termios);

impl Raw {
    /// Switches to raw mode, if standard input is a terminal.
    pub fn enter() -> Option<Self> {
        if !isatty(rustix::stdio::stdin()) {
            return None;
        }
        let before = tcgetattr(rustix::stdio::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Whether somebody watches what is told beside the output.
pub fn is_watched() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stderr())
}
