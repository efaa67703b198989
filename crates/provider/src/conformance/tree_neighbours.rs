//! Trees side by side: the end of one takes all of its own and nothing of another, whichever came first.

use super::case::{Case, Outcome, Verdict, case, ensure};
use super::place::shown;
use super::subject::Subject;
use super::tree_script::{Escape, Runaway};
use std::time::Duration;
use stead_types::{ComputeConfig, Descendants};

pub(super) fn cases() -> Vec<Case> {
    [
        case!(
            "4",
            "a sweep takes nothing of a tree that is kept",
            sweep_beside_kept
        ),
        case!(
            "4",
            "a timeout takes nothing of a tree that is kept",
            timeout_beside_kept
        ),
        case!(
            "4",
            "commands at once: each takes its own daemons and no other's",
            at_once
        ),
    ]
    .map(Case::waits)
    .to_vec()
}

const ESCAPES: [Escape; 3] = [Escape::Background, Escape::DoubleFork, Escape::Daemon];

async fn sweep_beside_kept(subject: &Subject) -> Outcome {
    let place = subject.fresh().await?;
    for escape in ESCAPES {
        // One that came first, one in the middle, and one after it.
        let first = Runaway::new(&place, escape).await?;
        first.leader_exits(Descendants::Keep).await?;
        let swept = Runaway::new(&place, escape).await?;
        swept.leader_exits(Descendants::Sweep).await?;
        let last = Runaway::new(&place, escape).await?;
        last.leader_exits(Descendants::Keep).await?;
        let swept_too = Runaway::new(&place, escape).await?;
        swept_too.leader_exits(Descendants::Sweep).await?;
        swept.ensure_gone().await?;
        swept_too.ensure_gone().await?;
        first
            .until_marker()
            .await
            .map_err(|f| f.during(&format!("{escape:?}, kept first")))?;
        last.until_marker()
            .await
            .map_err(|f| f.during(&format!("{escape:?}, kept last")))?;
    }
    Ok(Verdict::Passed)
}

async fn timeout_beside_kept(subject: &Subject) -> Outcome {
    let place = subject.fresh().await?;
    for escape in ESCAPES {
        let kept = Runaway::new(&place, escape).await?;
        kept.leader_exits(Descendants::Keep).await?;
        let ended = Runaway::new(&place, escape).await?;
        let grace = Duration::from_millis(300);
        ended.times_out(2, grace).await?;
        ended.ensure_gone().await?;
        kept.until_marker()
            .await
            .map_err(|f| f.during(&format!("{escape:?}")))?;
    }
    Ok(Verdict::Passed)
}

/// Two that run, with a daemon each, and end in the order in which they came and in the other.
async fn at_once(subject: &Subject) -> Outcome {
    let place = subject.fresh().await?;
    for second_first in [false, true] {
        let [one, two] = [
            Runaway::new(&place, Escape::Daemon).await?,
            Runaway::new(&place, Escape::Daemon).await?,
        ];
        let wait = |runaway: &Runaway<'_>| {
            let dir = runaway.directory.display().to_string();
            runaway.command(&format!(
                "while [ ! -e {dir}/end ]; do sleep 0.1 2>/dev/null || sleep 1; done; echo ended"
            ))
        };
        let steps = async {
            one.until_started().await?;
            two.until_started().await?;
            let (earlier, later) = if second_first { (&two, &one) } else { (&one, &two) };
            let end = |runaway: &Runaway<'_>| format!(": > {}/end", runaway.directory.display());
            place.sh_ok(end(earlier)).await?;
            earlier.until_no_process().await?;
            later.until_marker().await?;
            place.sh_ok(end(later)).await.map(drop)
        };
        let patient = || ComputeConfig::new().timeout(Duration::from_secs(60));
        let (first, second, steps) = futures_util::join!(
            place.execute(wait(&one), patient()),
            place.execute(wait(&two), patient()),
            steps
        );
        steps.map_err(|f| f.during(&format!("second first: {second_first}")))?;
        for result in [first?, second?] {
            ensure!(
                result.success() && result.stdout == b"ended\n",
                "a command did not end well: {}",
                shown(&result)
            );
        }
    }
    Ok(Verdict::Passed)
}
