//! The filter of system calls that an engine is given: the same calls as in a `native` place, so that what a container
//! may call depends on no engine's version. Profiles of engines before Docker 24 let vsock through, and before 25
//! io_uring.

use serde_json::{Value, json};
use stead_confine::system_calls::{ALLOWED, Argument, CONDITIONAL, REFUSED};

/// EPERM and ENOSYS.
const NOT_PERMITTED: u32 = 1;
const NO_SUCH_CALL: u32 = 38;

/// The profile, in the engine's own form.
pub fn profile() -> String {
    let allowed = ALLOWED
        .iter()
        .flat_map(|(_, names)| names.split_ascii_whitespace());
    let refused: Vec<&str> = REFUSED.split_ascii_whitespace().collect();
    let mut rules = vec![
        json!({"names": allowed.collect::<Vec<_>>(), "action": "SCMP_ACT_ALLOW"}),
        json!({"names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": NOT_PERMITTED}),
        // By name, because older engines do not know a default number and say EPERM, which C libraries believe: then
        // no program there could start a thread.
        json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": NO_SUCH_CALL}),
    ];
    for (name, at, argument) in CONDITIONAL {
        rules.extend(conditional(name, at, argument));
    }
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": NO_SUCH_CALL,
        "syscalls": rules,
    })
    .to_string()
}

/// Rules of which one must hold. Each compares all 64 bits of the argument, of which the kernel may take 32: that is
/// safe only where what is equal is let through.
fn conditional(name: &str, at: u8, argument: Argument) -> Vec<Value> {
    let rule = |arguments: Value| json!({"names": [name], "action": "SCMP_ACT_ALLOW", "args": arguments});
    match argument {
        Argument::OneOf(values) => values
            .iter()
            .map(|value| rule(json!([{"index": at, "value": value, "op": "SCMP_CMP_EQ"}])))
            .collect(),
        Argument::Without(bits) => {
            vec![rule(
                json!([{"index": at, "value": bits, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]),
            )]
        }
        // An engine takes one comparison of an argument in a rule, and any rule that holds lets it through, so that
        // this cannot be said. It is ioctl's: terminals in a container are those of its own supervisor, and into
        // them its processes may type.
        Argument::NoneOf(_) => vec![rule(json!([]))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_its_rule() {
        let profile: Value = serde_json::from_str(&profile()).unwrap();
        let rules = profile["syscalls"].as_array().unwrap();
        let of = |name: &str| -> Vec<&Value> {
            rules
                .iter()
                .filter(|rule| {
                    rule["names"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .any(|other| other == name)
                })
                .collect()
        };
        assert_eq!(of("read")[0]["action"], "SCMP_ACT_ALLOW");
        assert_eq!(of("bpf")[0]["action"], "SCMP_ACT_ERRNO");
        assert_eq!(
            of("clone3")[0]["errnoRet"],
            NO_SUCH_CALL,
            "programs then use clone"
        );
        assert_eq!(of("clone")[0]["args"][0]["op"], "SCMP_CMP_MASKED_EQ");
        let families: Vec<_> = of("socket")
            .iter()
            .map(|rule| rule["args"][0]["value"].as_u64().unwrap())
            .collect();
        assert_eq!(families, [1, 2, 10, 16]);
        for (name, _, argument) in CONDITIONAL {
            let expected = if let Argument::OneOf(values) = argument {
                values.len()
            } else {
                1
            };
            assert_eq!(of(name).len(), expected, "{name}");
        }
    }
}
