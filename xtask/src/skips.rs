//! What tests did not run, and why.
//!
//! A test that cannot run here prints `SKIPPED name: reason` and appends the same line to the file that
//! `STEAD_SKIP_LOG` names: cargo hides what a passing test prints, and a skip must be seen.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// How the reason of a skip begins that no set-up could have prevented: a kernel, a platform.
const CANNOT: &str = "this machine cannot ";

/// The file that tests append to.
pub struct SkipLog {
    path: PathBuf,
}

impl SkipLog {
    /// Begins anew.
    pub fn begin() -> Result<Self> {
        let path = crate::workspace::target().join("skipped.log");
        std::fs::create_dir_all(crate::workspace::target())?;
        std::fs::write(&path, "").with_context(|| format!("could not write {}", path.display()))?;
        Ok(Self { path })
    }

    /// The value of `STEAD_SKIP_LOG`.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Prints what was skipped. With `strict`, a skip of what this machine can run is an error.
    pub fn report(&self, strict: bool) -> Result<()> {
        let text = std::fs::read_to_string(&self.path)
            .with_context(|| format!("could not read {}", self.path.display()))?;
        let skipped = lines(&text);
        if skipped.is_empty() {
            println!("xtask: no test was skipped");
            return Ok(());
        }
        println!("xtask: {} skipped:", skipped.len());
        for line in &skipped {
            println!("  {line}");
        }
        let avoidable = skipped.iter().filter(|line| is_avoidable(line)).count();
        if strict && avoidable > 0 {
            bail!("{avoidable} of the skipped tests could have run on this machine");
        }
        Ok(())
    }
}

/// Each line once, sorted: retried and parametrised tests say the same more than once.
fn lines(text: &str) -> Vec<&str> {
    let lines: std::collections::BTreeSet<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.into_iter().collect()
}

fn is_avoidable(line: &str) -> bool {
    let reason = line
        .strip_prefix("SKIPPED ")
        .and_then(|rest| rest.split_once(": "))
        .map(|(_, reason)| reason);
    // A line of any other shape says nothing that could excuse it.
    !reason.is_some_and(|reason| reason.starts_with(CANNOT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_once() {
        assert_eq!(lines("b\na\n\nb\n"), ["a", "b"]);
    }

    #[test]
    fn only_what_the_machine_cannot_do_is_excused() {
        assert!(!is_avoidable(
            "SKIPPED cgroup::kill: this machine cannot make cgroups of version 2"
        ));
        assert!(is_avoidable("SKIPPED docker::hello: no engine answers"));
        assert!(is_avoidable("this machine cannot say its name"));
    }
}
