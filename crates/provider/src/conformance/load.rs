//! Many commands, many orphans, and nothing that is left of them.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::outcomes::ensure_end;
use super::own_process::{Held, held};
use super::place::{Place, ensure_bytes};
use super::subject::Subject;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::time::Duration;
use stead_types::{ComputeConfig, Timeout};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("9.5", "1,000 commands one after the other", series).limit(600),
        case!("9.5", "1,000 commands at once", parallel).limit(600),
        case!("9.7", "10,000 orphans: none stays a zombie", orphans).limit(600),
    ]
}

const COMMANDS: usize = 1000;

/// Descriptors and threads that come and go with what else the process does.
const TOLERANCE: usize = 16;

/// How often one looks for something that has to pass, and how long one waits in between.
const LOOKS: usize = 60;
const PAUSE: Duration = Duration::from_secs(1);

fn patient() -> ComputeConfig {
    ComputeConfig {
        timeout: Some(Timeout::Never),
        ..ComputeConfig::new()
    }
}

async fn one(place: &Place<'_>, number: usize) -> Result<(), Failure> {
    let what = format!("command {number}");
    // Every second one is the plainest command there is; the others show that output is not mixed up.
    if number.is_multiple_of(2) {
        let result = place
            .execute(["true"], patient())
            .await
            .map_err(|e| Failure::from(e).during(&what))?;
        ensure_end(&what, &result, 0, None)?;
        return ensure_bytes(&what, &result.stdout, b"");
    }
    let argument = number.to_string();
    let result = place.execute(["echo", argument.as_str()], patient()).await;
    let result = result.map_err(|e| Failure::from(e).during(&what))?;
    ensure_end(&what, &result, 0, None)?;
    ensure_bytes(&what, &result.stdout, format!("{number}\n").as_bytes())
}

/// What there is before and must not be more afterwards.
struct Before {
    held: Option<Held>,
    zombies: BTreeSet<String>,
    instances: BTreeSet<stead_types::InstanceId>,
}

impl Before {
    async fn of(place: &Place<'_>) -> Result<Self, Failure> {
        // What is made once and kept is made before one counts.
        for number in 0..10 {
            one(place, number).await?;
        }
        let (held, zombies) = (held(), zombies(place).await?);
        Ok(Self {
            held,
            zombies,
            instances: place.subject.ids().await?,
        })
    }

    async fn ensure_no_more(&self, place: &Place<'_>) -> Result<(), Failure> {
        self.ensure_no_zombies(place).await?;
        let ids = place.subject.ids().await?;
        let more: Vec<_> = ids.difference(&self.instances).collect();
        ensure!(more.is_empty(), "instances that nobody asked for: {more:?}");
        self.ensure_own_process().await
    }

    /// Idle threads may take some seconds to end, so one looks again.
    async fn ensure_own_process(&self) -> Result<(), Failure> {
        let Some(before) = self.held else {
            return Ok(());
        };
        let mut last = before;
        for _ in 0..LOOKS {
            match held() {
                Some(now) if fits(before, now) => return Ok(()),
                Some(now) => last = now,
                None => return Ok(()),
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Failure::new(format!(
            "this process held {before:?} before and holds {last:?} now"
        )))
    }

    /// A process that ended a moment ago may be a zombie for a moment; one that stays is a leak.
    async fn ensure_no_zombies(&self, place: &Place<'_>) -> Result<(), Failure> {
        let mut staying: Option<BTreeSet<String>> = None;
        for _ in 0..LOOKS {
            let now: BTreeSet<String> = zombies(place).await?.difference(&self.zombies).cloned().collect();
            let both = staying.map_or(now.clone(), |seen| seen.intersection(&now).cloned().collect());
            if both.is_empty() {
                return Ok(());
            }
            staying = Some(both);
            tokio::time::sleep(PAUSE).await;
        }
        let staying = staying.unwrap_or_default();
        let some: Vec<_> = staying.iter().take(5).collect();
        Err(Failure::new(format!(
            "{} zombies stay, among them (pid parent name): {some:?}",
            staying.len()
        )))
    }
}

fn fits(before: Held, now: Held) -> bool {
    now.descriptors <= before.descriptors + TOLERANCE
        && now.threads <= before.threads + TOLERANCE as u64
        && now.zombies <= before.zombies
}

/// `pid parent name` of every zombie that the place sees. Where the place's processes are those of the host,
/// only those that can come from the cases' own commands.
async fn zombies(place: &Place<'_>) -> Result<BTreeSet<String>, Failure> {
    let text = "for f in /proc/[0-9]*/stat; do
            { IFS= read -r line < \"$f\"; } 2>/dev/null || continue
            rest=${line##*) }; case $rest in Z*) ;; *) continue;; esac
            name=${line#*\\(}; set -- $rest; echo \"${line%% *} $2 ${name%%)*}\"
        done";
    let found = place.sh_ok(text).await?;
    let ours = |line: &&str| {
        let name = line.rsplit(' ').next().unwrap_or_default();
        !place.subject.facts.shares_host_processes || ["sh", "true", "echo", "sleep"].contains(&name)
    };
    Ok(found.lines().filter(ours).map(str::to_owned).collect())
}

async fn series(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let before = Before::of(&place).await?;
    for number in 0..COMMANDS {
        one(&place, number).await?;
    }
    before.ensure_no_more(&place).await?;
    Ok(Verdict::Passed)
}

async fn parallel(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let before = Before::of(&place).await?;
    let results = join_all((0..COMMANDS).map(|number| one(&place, number))).await;
    ensure!(
        results.len() == COMMANDS,
        "{} results of {COMMANDS}",
        results.len()
    );
    let failures: Vec<String> = results
        .into_iter()
        .filter_map(|r| r.err().map(|f| f.to_string()))
        .collect();
    let first = failures.first().cloned().unwrap_or_default();
    ensure!(
        failures.is_empty(),
        "{} of {COMMANDS} failed; the first: {first}",
        failures.len()
    );
    before.ensure_no_more(&place).await?;
    Ok(Verdict::Passed)
}

async fn orphans(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    if place
        .sh_ok("[ -r /proc/self/stat ] && echo yes || echo no")
        .await?
        != "yes\n"
    {
        return Verdict::skipped("the place has no /proc, so zombies cannot be seen");
    }
    let before = Before::of(&place).await?;
    let text = "i=0; while [ $i -lt 10000 ]; do (: &); i=$((i + 1)); done; echo made; read line; echo end";
    let config = ComputeConfig {
        stdin: Some(stead_types::Stdin::Stream),
        ..patient()
    };
    let mut process = place.spawn(text, config).await?;
    super::live::read_until(&mut process, b"made\n").await?;
    // While the command that made them still runs, and after it.
    before.ensure_no_zombies(&place).await?;
    process.control().write_stdin(b"go\n").await?;
    super::live::read_until(&mut process, b"end\n").await?;
    super::live::ensure_exit(&process.wait_discarding_output().await?, 0, None)?;
    before.ensure_no_more(&place).await?;
    Ok(Verdict::Passed)
}
