//! A table of verdicts on system calls as a program for the kernel's filter machine.
//!
//! The number of a call is found by bisection: about ten comparisons whatever the table's size. A list of comparisons
//! one after the other is longer, and the kernel runs a new filter once for each number to learn what it always
//! lets through, so that a long one costs most of a millisecond when a place starts.

use crate::system_calls::Argument;
use std::collections::BTreeMap;
use stead_sys::FilterInstruction as Instruction;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is made.
    Allow,
    /// It is not, and its caller gets this error number.
    Refuse(u16),
    /// It is made when this argument, counted from 0, is as said; else its caller gets the error number.
    If(u8, Argument, u16),
}

// Instructions of the classic filter machine, linux/bpf_common.h.
const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_NOT_BELOW: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const JUMP_ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

// Results, linux/seccomp.h.
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;

// Offsets in struct seccomp_data, linux/seccomp.h.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64, linux/audit.h. Both are little-endian, which the halves of arguments
/// depend on.
#[cfg(target_arch = "x86_64")]
const OWN: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN: u32 = 0xc000_00b7;

fn instruction(code: u16, if_true: u8, if_false: u8, value: u32) -> Instruction {
    Instruction {
        code,
        if_true,
        if_false,
        value,
    }
}

fn returns(value: u32) -> Instruction {
    instruction(RETURN, 0, 0, value)
}

fn refuses(errno: u16) -> Instruction {
    returns(ERRNO | u32::from(errno))
}

/// The program. `otherwise` becomes of calls that the table does not have; a process that calls by the rules of another
/// architecture is killed, because there the numbers mean other calls.
pub fn program(table: &BTreeMap<u32, Verdict>, otherwise: Verdict) -> Vec<Instruction> {
    let mut program = vec![
        instruction(LOAD, 0, 0, ARCHITECTURE),
        instruction(JUMP_EQUAL, 1, 0, OWN),
        returns(KILL_PROCESS),
        instruction(LOAD, 0, 0, NUMBER),
    ];
    program.extend(bisect(&ranges(table, otherwise)));
    program
}

/// From which number on which verdict holds; the first begins at 0.
fn ranges(table: &BTreeMap<u32, Verdict>, otherwise: Verdict) -> Vec<(u32, Verdict)> {
    let mut ranges = vec![(0, otherwise)];
    let mut add = |from: u32, verdict: Verdict| {
        let same = |(_, last): &(u32, Verdict)| *last == verdict;
        if ranges.last().is_some_and(|(at, _)| *at == from) {
            ranges.pop();
        }
        if !ranges.last().is_some_and(same) {
            ranges.push((from, verdict));
        }
    };
    for (number, verdict) in table {
        add(*number, *verdict);
        if let Some(next) = number.checked_add(1) {
            add(next, otherwise);
        }
    }
    ranges
}

fn bisect(ranges: &[(u32, Verdict)]) -> Vec<Instruction> {
    let (below, above) = ranges.split_at(ranges.len() / 2);
    match (below, above) {
        ([], [(_, verdict), ..]) => leaf(*verdict),
        ([], []) => Vec::new(),
        (_, [(from, _), ..]) => {
            let (below, above) = (bisect(below), bisect(above));
            let mut all = Vec::with_capacity(below.len() + above.len() + 2);
            // A conditional jump reaches 255 instructions, an unconditional one all.
            match u8::try_from(below.len()) {
                Ok(distance) => all.push(instruction(JUMP_NOT_BELOW, distance, 0, *from)),
                Err(_) => {
                    all.push(instruction(JUMP_NOT_BELOW, 0, 1, *from));
                    let distance = u32::try_from(below.len()).unwrap_or(u32::MAX);
                    all.push(instruction(JUMP, 0, 0, distance));
                }
            }
            all.extend(below);
            all.extend(above);
            all
        }
        (_, []) => Vec::new(),
    }
}

fn leaf(verdict: Verdict) -> Vec<Instruction> {
    match verdict {
        Verdict::Allow => vec![returns(ALLOW)],
        Verdict::Refuse(errno) => vec![refuses(errno)],
        Verdict::If(at, argument, errno) => conditional(at, argument, errno),
    }
}

fn conditional(at: u8, argument: Argument, errno: u16) -> Vec<Instruction> {
    let low = ARGUMENTS + 8 * u32::from(at);
    let load = |offset| instruction(LOAD, 0, 0, offset);
    // The kernel takes 32 bits of these arguments, so the upper half must not decide.
    let among = |values: &[u64], then: Instruction, otherwise: Instruction| {
        let mut all = vec![load(low)];
        for (left, value) in (0..values.len()).rev().zip(values) {
            // Over the comparisons that are left and the result in between. Lists are short.
            let distance = u8::try_from(left + 1).unwrap_or(u8::MAX);
            all.push(instruction(JUMP_EQUAL, distance, 0, *value as u32));
        }
        all.extend([otherwise, then]);
        all
    };
    match argument {
        Argument::OneOf(values) => among(values, returns(ALLOW), refuses(errno)),
        Argument::NoneOf(values) => among(values, refuses(errno), returns(ALLOW)),
        Argument::Without(bits) => vec![
            load(low),
            instruction(JUMP_ANY_BIT, 3, 0, bits as u32),
            load(low + 4),
            instruction(JUMP_ANY_BIT, 1, 0, (bits >> 32) as u32),
            returns(ALLOW),
            refuses(errno),
        ],
    }
}

#[cfg(test)]
#[path = "bpf_tests.rs"]
mod tests;
