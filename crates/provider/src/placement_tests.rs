use super::*;
use crate::fake::Fake;

fn registry() -> Registry {
    let local: Factory = Arc::new(|| Arc::new(Fake::new("local")));
    Registry::with_builtins([("local", local)]).unwrap()
}

fn name(place: Option<Arc<ToolPlace>>) -> Option<String> {
    place.map(|place| place.name().to_owned())
}

#[test]
fn a_registered_provider_is_a_placement_by_that_one_call() {
    let registry = registry();
    let place = |on: &str| Placement::new().tools_run_on(on).resolve_in(&registry);
    assert!(matches!(place("my-remote"), Err(ResolveError::Unknown { .. })));
    registry
        .register("My-Remote", || Arc::new(Fake::new("my-remote")))
        .unwrap();
    assert_eq!(name(place("my-REMOTE").unwrap()), Some("my-remote".to_owned()));
    assert_eq!(name(place("local").unwrap()), Some("local".to_owned()));
    let (one, other) = (place("local").unwrap().unwrap(), place("local").unwrap().unwrap());
    assert!(!Arc::ptr_eq(&one, &other), "a name gives a new place");
}

#[test]
fn nothing_a_name_a_provider_or_a_place() {
    let registry = registry();
    for nothing in [RunOn::Nothing, None::<&str>.into(), "".into(), " ".into()] {
        assert_eq!(
            name(
                Placement::new()
                    .tools_run_on(nothing)
                    .resolve_in(&registry)
                    .unwrap()
            ),
            None
        );
    }
    let provider: Arc<dyn Provider> = Arc::new(Fake::new("mine"));
    let place = Placement::new()
        .tools_run_on(provider)
        .resolve_in(&registry)
        .unwrap();
    assert_eq!(name(place), Some("mine".to_owned()));
    let place = Arc::new(ToolPlace::new(Arc::new(Fake::new("placed"))));
    let resolved = Placement::new()
        .tools_run_on(Arc::clone(&place))
        .resolve_in(&registry)
        .unwrap()
        .unwrap();
    assert!(Arc::ptr_eq(&place, &resolved));
}

#[test]
fn two_names_of_the_setting_are_an_error() {
    let registry = registry();
    assert_eq!(
        name(Placement::new().run_on("local").resolve_in(&registry).unwrap()),
        Some("local".into())
    );
    assert_eq!(
        name(Placement::new().backend("local").resolve_in(&registry).unwrap()),
        Some("local".into())
    );
    let blank = Placement::new()
        .run_on("local")
        .backend("")
        .tools_run_on(None::<String>);
    assert_eq!(name(blank.resolve_in(&registry).unwrap()), Some("local".into()));
    for (placement, first, second) in [
        (
            Placement::new().tools_run_on("local").run_on("local"),
            "tools_run_on",
            "run_on",
        ),
        (
            Placement::new().tools_run_on("local").backend("x"),
            "tools_run_on",
            "backend",
        ),
        (
            Placement::new().run_on("local").backend("local"),
            "run_on",
            "backend",
        ),
    ] {
        let error = placement.resolve_in(&registry).err().unwrap();
        assert_eq!(error, ResolveError::TwoAxes { first, second });
    }
}

#[test]
fn registering_tool_places_again_changes_nothing() {
    let registry = registry();
    registry
        .register_place("git", || {
            Arc::new(
                ToolPlace::new(Arc::new(Fake::new("local")))
                    .tool("a", ":")
                    .unwrap(),
            )
        })
        .unwrap();
    let before = registry.list_places();
    registry.register_tool_places();
    registry.register_tool_places();
    assert_eq!(registry.list_places(), before);
    assert_eq!(before, ["git", "local"]);
    assert_eq!(
        registry.place("git").unwrap().unwrap().tools(),
        [("a".to_owned(), vec![])]
    );
    assert_eq!(registry.list(), ["local"], "a place is no provider");
}
