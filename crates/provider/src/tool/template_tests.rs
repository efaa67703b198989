use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::process::{Command, Output};

fn args(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn render(template: &str, value: Value) -> String {
    ShellTemplate::parse(template)
        .unwrap()
        .render(&args(value))
        .unwrap()
}

/// Shells of this machine. The first is `/bin/sh`; the others are used when they are here.
fn shells() -> Vec<Vec<&'static str>> {
    [
        vec!["/bin/sh"],
        vec!["/bin/bash", "--posix"],
        vec!["/bin/bash"],
        vec!["/usr/bin/busybox", "sh"],
    ]
    .into_iter()
    .enumerate()
    .filter(|(at, shell)| *at == 0 || std::path::Path::new(shell[0]).exists())
    .map(|(_, shell)| shell)
    .collect()
}

fn run(shell: &[&str], text: &str, directory: &std::path::Path) -> Output {
    Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", text])
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/nowhere")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn each_value_has_its_text() {
    let template = "x {{a}} {{ b }} {{\tc }} {{d}} {{e}} {{f.g}} {{missing}}";
    let value = json!({"a": "it's", "b": 1.5, "c": true, "d": {"k": ["v", null]}, "e": null, "f.g": "", "f": {"g": 1}});
    assert_eq!(
        render(template, value),
        r#"x 'it'\''s' '1.5' 'true' '{"k":["v",null]}' '' '' ''"#
    );
}

#[test]
fn an_empty_template_is_an_error() {
    for empty in ["", " ", "\n\t "] {
        assert_eq!(
            ShellTemplate::parse(empty),
            Err(TemplateError::Empty),
            "{empty:?}"
        );
    }
    assert!(ShellTemplate::parse(":").is_ok());
}

#[test]
fn a_nul_byte_is_an_error() {
    assert_eq!(ShellTemplate::parse("a\0"), Err(TemplateError::Nul { at: 1 }));
    let template = ShellTemplate::parse("echo {{a}}").unwrap();
    let error = template.render(&args(json!({"a": "\0"}))).unwrap_err();
    assert_eq!(error, TemplateError::NulValue { name: "a".into() });
    assert_eq!(error.code(), "tool_arguments_invalid");
}

#[test]
fn malformed_placeholders_are_errors_with_their_position() {
    for (template, position) in [
        ("echo {{ bad-name }}", 5),
        ("echo {{}}", 5),
        ("é {{ a", 3),
        ("echo {{ a b }}", 5),
        ("echo {{{a}}}", 5),
        ("echo {{a}} {{", 11),
        ("echo '{{ x | y }}'", 6),
    ] {
        match ShellTemplate::parse(template) {
            Err(TemplateError::Malformed { at, .. }) => assert_eq!(at, position, "{template}"),
            other => panic!("{template}: {other:?}"),
        }
    }
    for literal in [
        "echo }}",
        "echo {a}",
        "echo {\\{.Names}}",
        "docker ps --format '{''{.Names}}'",
        "f() { { :; }; }",
    ] {
        assert_eq!(render(literal, json!({})), literal);
    }
}

#[test]
fn a_placeholder_where_quoting_cannot_hold_is_an_error_with_its_position() {
    use Context::*;
    for (before, after, expected) in [
        ("echo '", "'", SingleQuotes),
        ("echo a'b ", "c'", SingleQuotes),
        ("echo $'", "'", SingleQuotes),
        ("echo \"", "\"", DoubleQuotes),
        ("echo \"\\\"", "\"", DoubleQuotes),
        ("echo \"'", "'\"", DoubleQuotes),
        ("echo $\"", "\"", DoubleQuotes),
        ("echo \"${x}", "\"", DoubleQuotes),
        ("echo \"$(echo \")\")", "\"", DoubleQuotes),
        ("echo \"\\", "\"", DoubleQuotes),
        ("echo \\", "", Backslash),
        ("echo \\\\\\", "", Backslash),
        ("echo $", "", Dollar),
        ("echo $$", "", Dollar),
        ("# ", "", Comment),
        ("echo a # b ", "\necho", Comment),
        ("echo a;#", "", Comment),
        ("echo a \\\n#", "", Comment),
        ("(#", "\n:)", Comment),
        ("cat <<EOF\na ", "\nEOF", HereDocument),
        ("cat <<'EOF'\na ", "\nEOF", HereDocument),
        ("cat << \\EOF\n", "\nEOF", HereDocument),
        ("cat <<-EOF\n\tx\n\t", "\n\tEOF", HereDocument),
        ("cat <<A <<B\na\nA\n", "\nB", HereDocument),
        ("cat <<EOF > ", "\nEOF", HereDocument),
        ("cat <<", "\nv\n", HereDocument),
        ("cat <<-\t", "\nv\n", HereDocument),
        ("echo \"$(echo ", ")\"", QuotedSubstitution),
        ("echo \"$(echo \"$(echo ", ")\")\"", QuotedSubstitution),
        ("echo `echo ", "`", Backquotes),
        ("echo `echo '", "'`", Backquotes),
        ("echo \"`echo ", "`\"", Backquotes),
        ("echo \"$(echo `", "`)\"", Backquotes),
        ("echo ${x:-", "}", Parameter),
        ("echo \"${x:-", "}\"", Parameter),
        ("echo ${x:-${y:-", "}}", Parameter),
        ("echo ${x:-\"", "\"}", Parameter),
        ("echo $(( ", " + 1 ))", Arithmetic),
        ("echo \"$(( (1) + ", " ))\"", Arithmetic),
        ("a[", "]=1", Brackets),
        ("a[1 + ", "]=1", Brackets),
        ("echo [", "]*", Brackets),
        ("echo $'\\'' ", "", Untracked { since: 5 }),
        ("(( ", " ))", Untracked { since: 1 }),
        ("cat <<< ", "", Untracked { since: 4 }),
        ("echo $[ ", " ]", Untracked { since: 5 }),
        (
            "echo \"$(case x in x) echo ')';; esac)\" ",
            "",
            Untracked { since: 8 },
        ),
        ("echo $(echo # ' )\n) ", "", Untracked { since: 12 }),
        ("echo $((echo a) | cat) ", "", Untracked { since: 5 }),
        ("echo `echo '`' ", "'", Untracked { since: 5 }),
        ("cat <<EOF\n$(echo\nEOF\n)\nEOF\n", "", Untracked { since: 10 }),
        ("cat <<EOF 'a\nb'\nEOF\n", "", Untracked { since: 10 }),
        ("cat <<E$x\n:\n", "", Untracked { since: 4 }),
        // Lines are joined before operators are looked for.
        ("cat <\\\n<EOF\n", "\nEOF", Untracked { since: 5 }),
        ("cat 0<\\\n<-EOF\n\t", "\n\tEOF", Untracked { since: 6 }),
        ("cat <\\\n\\\n<EOF\n", "\nEOF", Untracked { since: 5 }),
        ("cat <<\\\nEOF\n", "\nEOF", Untracked { since: 4 }),
        ("ev\\\nal ", "", Untracked { since: 2 }),
        // An index over lines, and numbers that are evaluated.
        ("a[\n", "]=1", Brackets),
        ("a[b[0] + ", "]=1", Brackets),
        ("a=([0 + ", "]=1)", Brackets),
        ("declare -a a+=([1]=2 [0+ ", "]=1)", Brackets),
        ("[[ ", " -gt 3 ]] && echo more", Untracked { since: 0 }),
        ("if [[ 1 -lt ", " ]]; then echo more; fi", Untracked { since: 3 }),
        ("case a in a)# ", "\n:;; esac", Untracked { since: 12 }),
        ("echo a\u{a0}# ", "", Untracked { since: 8 }),
    ] {
        let template = format!("{before}{{{{ v }}}}{after}");
        let expected = TemplateError::Unquotable {
            name: "v".into(),
            at: before.len(),
            context: expected,
        };
        assert_eq!(ShellTemplate::parse(&template), Err(expected), "{template}");
        // The same text with a word instead of the placeholder is no business of ours.
        let plain = ShellTemplate::parse(&format!("{before}v{after}"));
        assert!(plain.is_ok(), "{template}: {plain:?}");
    }
}

#[test]
fn unclosed_text_is_an_error_with_the_position_of_its_start() {
    for (template, position) in [
        ("echo 'a", 5),
        ("echo \"a", 5),
        ("echo $(a", 5),
        ("echo `a", 5),
        ("echo ${a", 5),
        ("echo $((1", 5),
        ("cat <<EOF\na", 4),
        ("cat <<EOF", 4),
        ("echo {{a}} \"$(b", 12),
    ] {
        match ShellTemplate::parse(template) {
            Err(TemplateError::Unclosed { at, .. }) => assert_eq!(at, position, "{template}"),
            other => panic!("{template}: {other:?}"),
        }
    }
}

/// What programs get as an argument and could take for something else.
const HOSTILE: &[&str] = &[
    "",
    "a; : > PWNED",
    "$(: > PWNED)",
    "`: > PWNED`",
    "'; : > PWNED; '",
    "'\"'; : > PWNED; '\"'",
    "\"; : > PWNED; \"",
    "\n: > PWNED\n",
    "\\'; : > PWNED; \\'",
    "\\\n: > PWNED\n\\",
    ")\n: > PWNED\n(",
    "))\n: > PWNED\n((",
    "}\n: > PWNED\n{",
    "\nEOF\n: > PWNED\n",
    "a[$(: > PWNED)]",
    "# '\n: > PWNED",
    "$HOME ~ * ? [a] {b,c} \u{1F600} é \t\r",
    "-n",
    "\\",
    "\\\\",
    "'",
    "''",
];

#[test]
fn in_real_shells_every_value_stays_one_argument_verbatim() {
    let directory = tempfile::tempdir().unwrap();
    let templates = [
        "printf '%s\\0' {{a}}",
        "printf '%s\\0' \\\n{{a}}",
        "printf '%s\\0' ''{{a}}\"\"",
        "x={{a}}; printf '%s\\0' \"$x\"",
        "# it's\nprintf '%s\\0' {{ a }} # \"",
        "printf \"%s\\0\" {{a}}; : \"$(echo \")\")\" `: 'x'` ${HOME#x} $((1 + (2 << 3))) $$ $#",
        ": <<'EOF'\nit's `\nEOF\nprintf '%s\\0' {{a}}",
        ": <<-EOF\n\tit's \"$HOME\n\tEOF\nprintf '%s\\0' {{a}}",
        ": $'x' $\"y\"; printf '%s\\0' {{a}}",
        "case {{a}} in '') printf '\\0';; *) (printf '%s\\0' {{a}});; esac",
        "x=$(printf '%s.' {{a}}); printf '%s\\0' \"${x%.}\"",
        "if [ -n {{a}} ]; then { printf '%s\\0' {{a}}; }; else printf '\\0'; fi",
        "f() { printf '%s\\0' \"$1\"; }; f {{a}}",
        "printf '%s\\0' $(){{a}}",
    ];
    for shell in shells() {
        for template in templates {
            for value in HOSTILE {
                let text = render(template, json!({ "a": value }));
                let output = run(&shell, &text, directory.path());
                assert_eq!(
                    output.stdout,
                    format!("{value}\0").into_bytes(),
                    "{shell:?} {template:?} {value:?}"
                );
                assert!(
                    !directory.path().join("PWNED").exists(),
                    "{shell:?} {template:?} {value:?}"
                );
            }
        }
    }
}

#[test]
fn the_shells_would_show_a_value_that_is_not_quoted() {
    for shell in shells() {
        let directory = tempfile::tempdir().unwrap();
        run(
            &shell,
            &format!("echo \"{}\"", quote(HOSTILE[2])),
            directory.path(),
        );
        assert!(directory.path().join("PWNED").exists(), "{shell:?}");
    }
}

/// Pieces of shell text, chosen to open, close and confuse.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "{{a}}",
        "{{a}}",
        "{{a}}",
        "{{a}}",
        " ",
        " ",
        "\n",
        "\n",
        "'",
        "\"",
        "\\",
        "`",
        "$",
        "(",
        ")",
        "$(",
        "$((",
        "))",
        "((",
        "${x:-",
        "${",
        "}",
        "{",
        "#",
        " #",
        "<<EOF",
        "<<-EOF",
        "<<'EOF'",
        "EOF",
        "\nEOF\n",
        "\n\tEOF\n",
        "<",
        ">",
        "<<",
        "-",
        ";",
        ";;",
        "&",
        "|",
        "[",
        "]",
        "a",
        "x=",
        "a[",
        ":",
        ": ",
        "echo ",
        "case ",
        "case a in a) ",
        " esac",
        " in ",
        "$'",
        "$\"",
        "$[",
        "$$",
        "$#",
        "\\\n",
        "<\\\n",
        "<\\\n<EOF\n",
        "<EOF\n",
        "\nEOF\n",
        "\t",
        "\r",
        "\u{a0}",
        "!",
        "=",
        "1",
        "+",
        "~",
        "*",
        "if :; then ",
        "; fi",
        "do ",
        "eval",
        "<(",
        "&&",
        "\\'",
        "\\\"",
        "\\\\",
        "\"$(",
        ")\"",
        "'\\''",
    ])
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[ -~\\n\\t\u{a0}é{}$('\"`#<]{0,60}") {
        let _ = ShellTemplate::parse(&text);
        let _ = TextTemplate::parse(&text);
    }

    #[test]
    fn pieces_of_shell_never_make_it_panic(pieces in prop::collection::vec(piece(), 0..30)) {
        let _ = ShellTemplate::parse(&pieces.concat());
    }

    #[test]
    fn text_without_placeholders_comes_back(text in "[a-z $'\"()#\\n]{1,40}") {
        if let Ok(template) = ShellTemplate::parse(&text) {
            prop_assert_eq!(template.render(&Map::new()).unwrap(), text);
        }
    }

    #[test]
    fn quoting_can_be_undone(value in "[^\0]{0,40}") {
        let quoted = quote(&value);
        prop_assert_eq!(quoted[1..quoted.len() - 1].replace("'\\''", "'"), value);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 10_000_000, ..ProptestConfig::with_cases(
        std::env::var("SHELL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40),
    ) })]

    // Whatever is accepted, however odd, no value is ever executed by any shell of this machine.
    #[test]
    fn an_accepted_template_never_runs_its_values(
        pieces in prop::collection::vec(piece(), 1..14).prop_map(|pieces| pieces.concat())
            .prop_filter("placeholder", |text| text.contains("{{a}}") && !text.contains("eval"))
            .prop_filter("accepted", |text| ShellTemplate::parse(text).is_ok()),
    ) {
        let template = ShellTemplate::parse(&pieces).unwrap();
        for value in HOSTILE.iter().filter(|value| value.contains("PWNED")) {
            let text = template.render(&args(json!({ "a": value }))).unwrap();
            for shell in shells() {
                let directory = tempfile::tempdir().unwrap();
                run(&shell, &text, directory.path());
                prop_assert!(!directory.path().join("PWNED").exists(), "{:?} {:?} {:?}", shell, text, value);
            }
        }
    }
}
