//! Taking times: in turns, so that whatever else the machine does falls on both sides.

use anyhow::Result;
use std::time::{Duration, Instant};

/// Runs before the first that counts.
const WARM_UP: usize = 20;

/// Median, and the 99th percentile.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Half were faster.
    pub p50: Duration,
    /// One in a hundred was slower.
    pub p99: Duration,
}

/// Takes both sides in turns, `rounds` times each.
pub async fn in_turns<A, B, FA, FB>(rounds: usize, mut ours: A, mut theirs: B) -> Result<(Times, Times)>
where
    A: FnMut() -> FA,
    B: FnMut() -> FB,
    FA: Future<Output = Result<()>>,
    FB: Future<Output = Result<()>>,
{
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    let warm_up = WARM_UP.min(rounds / 4);
    for round in 0..rounds + warm_up {
        let started = Instant::now();
        ours().await?;
        let ours_took = started.elapsed();
        let started = Instant::now();
        theirs().await?;
        let theirs_took = started.elapsed();
        if round >= warm_up {
            our_times.push(ours_took);
            their_times.push(theirs_took);
        }
    }
    Ok((times(our_times), times(their_times)))
}

/// Takes one side alone.
pub async fn alone<A, FA>(rounds: usize, mut ours: A) -> Result<Times>
where
    A: FnMut() -> FA,
    FA: Future<Output = Result<()>>,
{
    Ok(in_turns(rounds, &mut ours, || async { Ok(()) }).await?.0)
}

fn times(mut all: Vec<Duration>) -> Times {
    all.sort();
    let at = |part: usize| all.get(all.len() * part / 100).copied().unwrap_or_default();
    Times {
        p50: at(50),
        p99: at(99),
    }
}
