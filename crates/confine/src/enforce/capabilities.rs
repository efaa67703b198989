//! What root of the place keeps.

use super::{During, StepFailed};
use crate::plan::Capability;
use rustix::thread::{CapabilitySet, CapabilitySets};

fn set_of(capability: Capability) -> CapabilitySet {
    match capability {
        Capability::Chown => CapabilitySet::CHOWN,
        Capability::DacOverride => CapabilitySet::DAC_OVERRIDE,
        Capability::Fowner => CapabilitySet::FOWNER,
        Capability::Fsetid => CapabilitySet::FSETID,
        Capability::Kill => CapabilitySet::KILL,
        Capability::Setgid => CapabilitySet::SETGID,
        Capability::Setuid => CapabilitySet::SETUID,
        Capability::NetBindService => CapabilitySet::NET_BIND_SERVICE,
    }
}

/// Drops every other capability, also from what a program of root could get again.
pub fn keep_only(kept: &[Capability]) -> Result<(), StepFailed> {
    let kept: CapabilitySet = kept.iter().copied().map(set_of).collect();
    rustix::thread::clear_ambient_capability_set().during("clear the ambient capabilities")?;
    for number in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(one) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // Numbers that this kernel does not have.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error).during(format!("drop capability {number}")),
        }
    }
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).during("set the capabilities")
}
