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

#[test]
fn the_network_has_a_short_form() {
    let network = |value: serde_json::Value| {
        let file: Result<PlaceFile, _> = serde_json::from_value(json!({"provider": "x", "network": value}));
        file.map(|file| file.network).map_err(|error| error.to_string())
    };
    assert_eq!(network(json!("none")), Ok(Some(NetworkPolicy::None)));
    assert_eq!(network(json!("full")), Ok(Some(NetworkPolicy::Full)));
    let allow = NetworkPolicy::Allow {
        domains: vec!["a.example".to_owned()],
    };
    assert_eq!(network(json!("a.example")), Ok(Some(allow.clone())));
    assert_eq!(network(json!(["a.example"])), Ok(Some(allow)));
    assert_eq!(network(json!(null)), Ok(None));
    for bad in [
        json!("Full"),
        json!(["a b"]),
        json!(7),
        json!({"mode": "allow", "domains": [""]}),
    ] {
        assert!(network(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn a_place_can_name_its_user_and_grants() {
    let mounts = json!([{"host": "/src", "place": "/code", "read_only": true}]);
    let file = json!({"provider": "x", "user": "1000:1000", "mounts": mounts});
    let config = serde_json::from_value::<PlaceFile>(file)
        .unwrap()
        .config()
        .unwrap();
    assert_eq!(config.user.as_deref(), Some("1000:1000"));
    let mount = Mount {
        host: "/src".into(),
        place: "/code".into(),
        read_only: true,
    };
    assert_eq!(config.mounts, [mount]);
}
