use super::*;
use crate::fake::Fake;
use serde_json::{Value, json};

fn read(value: Value) -> Result<PlaceFile, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[test]
fn a_whole_file_becomes_a_place() {
    let file = read(json!({
        "provider": "docker", "image": "alpine", "workdir": "/w", "env": {"A": "1"}, "strict": true,
        "network": {"mode": "allow", "domains": ["a.example"]}, "timeout": 5, "inherit_env": "none",
        "resources": {"cpu": 0.5, "memory": "512MiB", "pids": 9, "disk": 1024}, "options": {"x": [1]},
        "tools": {
            "log": {"argv": ["git", "log", "{{n}}"], "timeout": "1.5s", "env": {"B": "2"}, "stdin": "{{x}}"},
            "say": {"command": "echo {{x}}"}
        }
    }))
    .unwrap();
    let config = file.config().unwrap();
    assert_eq!(config.timeout, Some(Timeout::After(Duration::from_secs(5))));
    assert_eq!(config.resources.memory, Some(512 << 20));
    assert_eq!(config.resources.disk, Some(1024));
    assert_eq!(config.inherit_env, Some(InheritEnv::None));
    assert_eq!(config.options["x"], json!([1]));
    let place = file.place(Arc::new(Fake::new("docker"))).unwrap();
    let names: Vec<_> = place
        .tools()
        .into_iter()
        .map(|(tool, args)| format!("{tool}({})", args.join(",")))
        .collect();
    assert_eq!(names, ["log(n,x)", "say(x)"]);
}

#[test]
fn unknown_keys_and_wrong_types_are_refused() {
    assert!(read(json!({"provider": "x"})).is_ok());
    for bad in [
        json!({}),
        json!({"provider": "x", "imgae": "y"}),
        json!({"provider": "x", "tools": {"a": {"comand": "y"}}}),
        json!({"provider": "x", "resources": {"mem": 1}}),
        json!({"provider": "x", "resources": {"memory": "1 GB"}}),
        json!({"provider": "x", "timeout": "soon"}),
        json!({"provider": "x", "timeout": -1}),
        json!({"provider": "x", "timeout": true}),
        json!({"provider": "x", "network": {"mode": "some"}}),
    ] {
        assert!(read(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn what_no_place_can_have_is_refused() {
    let config = |value: Value| read(value).unwrap().config();
    assert!(config(json!({"provider": "x", "workdir": "/w"})).is_ok());
    for bad in [
        json!({"provider": "x", "workdir": "w"}),
        json!({"provider": "x", "env": {"A=": ""}}),
        json!({"provider": "x", "timeout": 0}),
        json!({"provider": "x", "resources": {"memory": 1}}),
    ] {
        assert_eq!(
            config(bad.clone()).unwrap_err().code(),
            "place_file_invalid",
            "{bad}"
        );
    }
}

#[test]
fn a_tool_needs_exactly_one_valid_command() {
    let commands = |tool: Value| {
        read(json!({"provider": "x", "tools": {"t": tool}}))
            .unwrap()
            .commands()
    };
    assert!(commands(json!({"command": ":"})).is_ok());
    assert!(commands(json!({"argv": ["true"]})).is_ok());
    for (bad, code) in [
        (json!({}), "place_file_invalid"),
        (json!({"command": ":", "argv": ["true"]}), "place_file_invalid"),
        (json!({"command": "echo '{{x}}'"}), "template_invalid"),
        (json!({"argv": []}), "template_invalid"),
        (json!({"argv": ["true"], "stdin": "{{"}), "template_invalid"),
        (json!({"argv": ["true"], "timeout": 0}), "template_invalid"),
        (json!({"argv": ["true"], "env": {"": "x"}}), "template_invalid"),
    ] {
        assert_eq!(commands(bad.clone()).unwrap_err().code(), code, "{bad}");
    }
}
