//! Dependencies point one way; ARCHITECTURE.md has the picture.

use crate::source::packages;
use std::collections::{BTreeMap, BTreeSet};

/// Every package of the workspace and those of it on which it may depend, lowest first. A package may
/// depend only on packages above it in this list, so there can be no circle.
const ALLOWED: [(&str, &[&str]); 16] = [
    ("stead-testkit", &[]),
    ("stead-types", &[]),
    ("stead-wire", &[]),
    ("stead-sys", &[]),
    ("stead-confine", &["stead-sys"]),
    ("stead-image", &["stead-types", "stead-testkit"]),
    ("stead-egress", &["stead-types", "stead-testkit"]),
    ("stead-process", &["stead-sys", "stead-wire"]),
    ("stead-provider", &["stead-types"]),
    (
        "stead-providers",
        &[
            "stead-types",
            "stead-wire",
            "stead-confine",
            "stead-image",
            "stead-provider",
            "stead-testkit",
        ],
    ),
    (
        "stead",
        &["stead-types", "stead-image", "stead-provider", "stead-providers"],
    ),
    (
        "stead-supervisor",
        &["stead-confine", "stead-process", "stead-sys", "stead-wire"],
    ),
    (
        "stead-rig",
        &["stead-types", "stead-provider", "stead", "stead-testkit"],
    ),
    ("stead-cli", &["stead", "stead-testkit"]),
    ("stead-bench", &["stead"]),
    ("xtask", &["stead-testkit"]),
];

/// Nothing may depend on these: they are programs.
const PROGRAMS: [&str; 4] = ["stead-bench", "stead-cli", "stead-supervisor", "xtask"];

/// Package -> the workspace's packages that it names, of every kind: a test that reaches up would tie
/// the same knot.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let mut edges = BTreeMap::new();
    for package in packages() {
        let dependencies = package["dependencies"].as_array().unwrap();
        let ours = dependencies
            .iter()
            .filter(|dependency| dependency["path"].is_string());
        edges.insert(
            text(&package["name"]),
            ours.map(|dependency| text(&dependency["name"])).collect(),
        );
    }
    edges
}

#[test]
fn every_package_has_its_place_and_keeps_to_it() {
    let allowed: BTreeMap<_, _> = ALLOWED.into_iter().collect();
    for (package, dependencies) in edges() {
        let Some(may) = allowed.get(package.as_str()) else {
            panic!(
                "{package} has no place in the dependency graph yet: give it one here and in ARCHITECTURE.md"
            );
        };
        for dependency in dependencies {
            assert!(
                may.contains(&dependency.as_str()),
                "{package} must not depend on {dependency}"
            );
        }
    }
}

#[test]
fn the_allowed_graph_points_one_way_and_names_what_exists() {
    let existing = edges();
    let mut below = BTreeSet::new();
    for (package, may) in ALLOWED {
        assert!(
            existing.contains_key(package),
            "{package} is not in the workspace any more"
        );
        for dependency in may {
            assert!(
                below.contains(dependency),
                "{package} may depend on {dependency}, which is not below it"
            );
            assert!(
                !PROGRAMS.contains(dependency),
                "{package} may depend on the program {dependency}"
            );
        }
        below.insert(package);
    }
}
