//! The programs are run by a machine of the test's own, and compared with the table read plainly.

use super::*;

/// What a filter sees: number, architecture, arguments.
struct Call {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

impl Call {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            NUMBER => self.number,
            ARCHITECTURE => self.architecture,
            _ => {
                let at = usize::try_from(offset - ARGUMENTS).unwrap();
                let argument = self.arguments[at / 8];
                if at % 8 == 0 {
                    argument as u32
                } else {
                    (argument >> 32) as u32
                }
            }
        }
    }
}

fn run(program: &[Instruction], call: &Call) -> u32 {
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let Instruction {
            code,
            if_true,
            if_false,
            value,
        } = program[at];
        at += 1;
        let mut jump = |condition: bool| at += usize::from(if condition { if_true } else { if_false });
        match code {
            LOAD => accumulator = call.word(value),
            JUMP => at += usize::try_from(value).unwrap(),
            JUMP_EQUAL => jump(accumulator == value),
            JUMP_NOT_BELOW => jump(accumulator >= value),
            JUMP_ANY_BIT => jump(accumulator & value != 0),
            RETURN => return value,
            _ => panic!("an unknown instruction {code:#x}"),
        }
    }
}

/// The table, read plainly.
fn expected(table: &BTreeMap<u32, Verdict>, otherwise: Verdict, call: &Call) -> u32 {
    if call.architecture != OWN {
        return KILL_PROCESS;
    }
    let errno = |number: u16| ERRNO | u32::from(number);
    match table.get(&call.number).copied().unwrap_or(otherwise) {
        Verdict::Allow => ALLOW,
        Verdict::Refuse(number) => errno(number),
        Verdict::If(at, argument, number) => {
            let value = call.arguments[usize::from(at)];
            let low = value & 0xffff_ffff;
            let good = match argument {
                Argument::OneOf(values) => values.contains(&low),
                Argument::NoneOf(values) => !values.contains(&low),
                Argument::Without(bits) => value & bits == 0,
            };
            if good { ALLOW } else { errno(number) }
        }
    }
}

fn agrees(table: &BTreeMap<u32, Verdict>, otherwise: Verdict) {
    let program = program(table, otherwise);
    // BPF_MAXINSNS
    assert!((1..4096).contains(&program.len()));
    // All that is near a border of the table, and the values that rules speak of with their neighbours.
    let numbers = (0..1024).chain(
        table
            .keys()
            .flat_map(|n| [n.saturating_sub(1), *n, n.saturating_add(1)]),
    );
    let numbers = numbers.chain([0x3fff_ffff, 0x4000_0000, 0x4000_0001, u32::MAX]);
    let mut values: Vec<u64> = vec![0, 1, u64::MAX, 1 << 32, 1 << 63];
    for verdict in table.values() {
        if let Verdict::If(_, Argument::OneOf(list) | Argument::NoneOf(list), _) = verdict {
            let near = |value: &u64| [*value, value ^ 1, value | 1 << 32, value | 1 << 63];
            values.extend(list.iter().flat_map(near));
        }
    }
    values.extend((0..64).map(|bit| 1 << bit));
    for number in numbers {
        let conditional = matches!(table.get(&number), Some(Verdict::If(..)));
        let values = if conditional { &values[..] } else { &values[..2] };
        for value in values {
            for at in 0..6 {
                let mut call = Call {
                    number,
                    architecture: OWN,
                    arguments: [0; 6],
                };
                call.arguments[at] = *value;
                let found = run(&program, &call);
                assert_eq!(
                    found,
                    expected(table, otherwise, &call),
                    "{number} with {value:#x} as {at}"
                );
            }
        }
        let foreign = Call {
            number,
            architecture: 0x4000_0003,
            arguments: [0; 6],
        };
        assert_eq!(run(&program, &foreign), KILL_PROCESS);
    }
}

#[test]
fn the_program_says_what_the_table_says() {
    agrees(&crate::enforce::system_calls::table(), Verdict::Refuse(38));
    agrees(&crate::enforce::system_calls::guest_table(), Verdict::Allow);
}

#[test]
fn tables_of_any_shape_become_programs() {
    const LIST: &[u64] = &[3, 4, 0xffff_ffff];
    let verdicts = [
        Verdict::Allow,
        Verdict::Refuse(1),
        Verdict::If(0, Argument::OneOf(LIST), 38),
        Verdict::If(5, Argument::NoneOf(LIST), 1),
        Verdict::If(2, Argument::Without(0x8000_0001_0000_0002), 22),
    ];
    agrees(&BTreeMap::new(), Verdict::Refuse(38));
    // Far apart, side by side, at the ends; with so many rules that jumps are far.
    for step in [1_u32, 2, 7, 1000] {
        for size in [1_u32, 2, 3, 100, 300] {
            let numbers = (0..size).map(|n| n * step);
            let table = numbers.map(|n| (n, verdicts[usize::try_from(n / step).unwrap() % verdicts.len()]));
            agrees(&table.collect(), Verdict::Refuse(38));
        }
    }
    agrees(
        &[(0, Verdict::Allow), (u32::MAX, Verdict::Allow)].into(),
        Verdict::Refuse(1),
    );
}
