//! How a command ends: by itself, at its deadline, or because the host wants it; and when that is the final word.

use super::{Command, Outbox, Phase};
use crate::poll::Poller;
use rustix::process::Signal;
use std::time::{Duration, Instant};
use stead_wire::{Descendants, Exit, ExitStatus, StopCause};

/// How long a tree may withstand SIGKILL before we say so.
const TREE_REMAINS: Duration = Duration::from_secs(30);

/// How often a tree is looked at while it is being killed; and while it is kept.
const LOOK_KILLING: Duration = Duration::from_millis(2);
const LOOK_KEPT: Duration = Duration::from_millis(250);

impl Command {
    /// When to call [`Self::tick`] at the latest.
    pub fn wake_at(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Stopping {
                kill_at,
                killed_at: None,
                ..
            } => Some(kill_at),
            Phase::Launching | Phase::Running => self.deadline,
            Phase::Stopping { .. } | Phase::Sweeping { .. } | Phase::Ended => None,
        };
        [phase, self.look_at].into_iter().flatten().min()
    }

    /// The clock went on.
    pub fn tick(&mut self, now: Instant, poller: &Poller, out: &mut dyn Outbox) {
        if self.phase == Phase::Running && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.stop(StopCause::Timeout, self.grace, now);
        }
        if let Phase::Stopping {
            cause,
            kill_at,
            killed_at: None,
        } = self.phase
            && kill_at <= now
        {
            self.phase = Phase::Stopping {
                cause,
                kill_at,
                killed_at: Some(now),
            };
            self.tree.kill();
            self.look_at = Some(now);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look(now);
        }
        self.advance(now, poller, out);
    }

    /// Looks whether the tree is gone, and when to look again.
    pub(super) fn look(&mut self, now: Instant) {
        self.look_at = None;
        if self.tree_gone || self.phase == Phase::Launching {
            return;
        }
        if self.tree.is_empty() {
            self.tree_gone = true;
            return;
        }
        let again = match self.phase {
            // Some kernels deliver the kill only to those that were there: repeat it for what is new.
            Phase::Sweeping { .. }
            | Phase::Stopping {
                killed_at: Some(_), ..
            } => {
                self.tree.kill();
                LOOK_KILLING
            }
            Phase::Stopping { .. } => LOOK_KILLING,
            Phase::Running | Phase::Launching | Phase::Ended => LOOK_KEPT,
        };
        self.look_at = Some(now + again);
    }

    fn stop(&mut self, cause: StopCause, grace: Duration, now: Instant) {
        self.phase = Phase::Stopping {
            cause,
            kill_at: now + grace,
            killed_at: None,
        };
        if grace.is_zero() {
            self.phase = Phase::Stopping {
                cause,
                kill_at: now,
                killed_at: Some(now),
            };
            self.tree.kill();
        } else {
            self.tree.signal_all(Signal::TERM.as_raw());
            // What was stopped takes its SIGTERM only when it goes on.
            self.tree.signal_all(Signal::CONT.as_raw());
        }
        self.look_at = Some(now + LOOK_KILLING);
    }

    /// The host wants it ended; also sweeps what was kept.
    pub fn cancel(&mut self, grace: Duration, poller: &Poller, out: &mut dyn Outbox) {
        self.end_for(StopCause::Cancel, grace, poller, out);
    }

    /// The supervisor ends, and nobody of the host has asked for it.
    pub fn shut_down(&mut self, poller: &Poller, out: &mut dyn Outbox) {
        self.end_for(StopCause::ShutDown, Duration::ZERO, poller, out);
    }

    fn end_for(&mut self, cause: StopCause, grace: Duration, poller: &Poller, out: &mut dyn Outbox) {
        let now = Instant::now();
        match self.phase {
            Phase::Running => self.stop(cause, grace, now),
            // There is no program yet that could end in order.
            Phase::Launching => {
                self.phase = Phase::Stopping {
                    cause,
                    kill_at: now,
                    killed_at: Some(now),
                };
                self.tree.kill();
                self.look_at = Some(now);
            }
            Phase::Stopping {
                cause,
                kill_at,
                killed_at: None,
            } => {
                self.phase = Phase::Stopping {
                    cause,
                    kill_at: kill_at.min(now + grace),
                    killed_at: None,
                };
            }
            Phase::Ended if !self.tree_gone => {
                self.tree.kill();
                self.look_at = Some(now);
            }
            Phase::Stopping { .. } | Phase::Sweeping { .. } | Phase::Ended => {}
        }
        self.tick(now, poller, out);
    }

    pub(super) fn on_leader_exit(&mut self, status: ExitStatus, now: Instant) {
        self.leader = Some((status, now));
        match (self.phase, self.descendants) {
            (Phase::Running | Phase::Launching, Descendants::Sweep) => {
                self.phase = Phase::Sweeping { since: now };
                // Nearly always nothing is left: then nothing needs to be killed.
                if self.tree.is_empty() {
                    self.tree_gone = true;
                } else {
                    self.tree.kill();
                }
            }
            (Phase::Running | Phase::Launching, Descendants::Keep) => {
                self.end(None, status, now);
            }
            (Phase::Stopping { .. } | Phase::Sweeping { .. } | Phase::Ended, _) => {}
        }
        self.look_at = Some(now);
    }

    fn end(&mut self, stopped: Option<StopCause>, status: ExitStatus, at: Instant) {
        self.phase = Phase::Ended;
        let duration = at.saturating_duration_since(self.started_at);
        let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.exit = Some(Exit {
            status,
            stopped,
            duration_us,
            tree_gone: self.tree_gone,
            oom_killed: self.memory.kills() > self.kills_before,
        });
    }

    /// Whether the final word can be said.
    pub(super) fn decide(&mut self, now: Instant) {
        let (status, at) = match (self.phase, self.leader) {
            (
                Phase::Stopping {
                    killed_at: Some(killed),
                    ..
                },
                None,
            ) if killed + TREE_REMAINS <= now => (ExitStatus::Unknown, now),
            (_, Some(leader)) => leader,
            (_, None) => return,
        };
        match self.phase {
            Phase::Sweeping { since } if self.tree_gone || since + TREE_REMAINS <= now => {
                self.end(None, status, at);
            }
            Phase::Stopping { cause, killed_at, .. }
                if self.tree_gone || killed_at.is_some_and(|killed| killed + TREE_REMAINS <= now) =>
            {
                self.end(Some(cause), status, at);
            }
            Phase::Launching | Phase::Running | Phase::Sweeping { .. } | Phase::Stopping { .. } => {}
            Phase::Ended => {}
        }
    }
}
