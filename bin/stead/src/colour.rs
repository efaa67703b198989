//! Whether what we print may have colours: on a terminal only, and never against `NO_COLOR`.

use std::io::IsTerminal;

/// On standard error.
pub fn on_stderr() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    !refused && !dumb && std::io::stderr().is_terminal()
}
