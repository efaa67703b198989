//! The conformance kit: the same cases against any provider. A provider is done when they pass.
//!
//! ```no_run
//! # async fn example(provider: std::sync::Arc<dyn stead_provider::Provider>) {
//! use stead_provider::conformance::{Facts, Subject, run_from_env};
//!
//! let facts = Facts::new("/tmp").shares_host_processes(true);
//! let subject = Subject::new(provider, stead_types::ComputeConfig::new(), facts);
//! let report = run_from_env(&subject).await;
//! assert!(report.is_success(), "{report}");
//! # }
//! ```
//!
//! Every case is its own line of the [`Report`]. A case that cannot be judged in this place is skipped
//! with its reason, which is an outcome of its own and never a pass. No case asserts how long something
//! takes; each has a generous limit, and reaching it means that something hangs.
//!
//! Run one kit at a time on a host: some cases compare what exists before and after them.
//!
//! What the place must have: the small programs of a usual system (`sh`, `cat`, `sleep`, `grep`, …; a static
//! busybox is enough) and a directory that commands and [`crate::Files`] can write to. Each case works in a fresh
//! directory below it; these are left there, so give a directory that goes away.

mod archive;
mod case;
mod config;
mod dropped;
mod files;
mod files_io;
mod lifecycle;
mod live;
mod live_terminal;
mod load;
mod loss;
mod names;
mod outcomes;
mod outcomes_output;
mod own_process;
mod place;
mod report;
mod run;
mod streams;
mod subject;
mod tar_cases;
mod tree;
mod tree_neighbours;
mod tree_script;
mod tree_timeout;

pub use case::{Case, CaseFuture, Failure, Outcome, Verdict};
pub use report::{Line, Report};
pub use run::{ONLY_VARIABLE, REPEAT_VARIABLE, run, run_from_env};
pub use subject::{BreakInstance, Facts, Subject};

/// All cases, in the order of the sections of the contract.
pub fn cases() -> Vec<Case> {
    [
        lifecycle::cases(),
        config::cases(),
        outcomes::cases(),
        outcomes_output::cases(),
        streams::cases(),
        live::cases(),
        live_terminal::cases(),
        names::cases(),
        files::cases(),
        files_io::cases(),
        tar_cases::cases(),
        tree::cases(),
        tree_neighbours::cases(),
        tree_timeout::cases(),
        dropped::cases(),
        loss::cases(),
        load::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
