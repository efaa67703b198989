//! Prints figures.
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use stead::{ComputeConfig, LocalProvider, Provider};

fn p50(mut v: Vec<Duration>) -> Duration {
    v.sort();
    v[v.len() / 2]
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = "/tmp/true_static";
    let spawn = || {
        let t = Instant::now();
        let out = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert!(out.status.success());
        t.elapsed()
    };
    for _ in 0..50 { spawn(); }
    let base = p50((0..1000).map(|_| spawn()).collect());
    println!("posix_spawn {base:?}");
    for tree in ["auto", "cgroup1", "reaper"] {
        let local = LocalProvider::new();
        let i = local.provision(ComputeConfig::new().option("tree", tree)).await?;
        let mut v = Vec::new();
        for n in 0..1050 {
            let t = Instant::now();
            let r = local.execute(&i.id, [program].into(), ComputeConfig::new()).await?;
            assert!(r.success());
            if n >= 50 { v.push(t.elapsed()); }
        }
        let p = p50(v);
        println!("local {tree} {p:?} {:.2}x", p.as_secs_f64() / base.as_secs_f64());
        local.shutdown(&i.id).await?;
    }
    Ok(())
}
