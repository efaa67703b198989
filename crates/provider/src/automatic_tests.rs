use super::*;
use crate::fake::Fake;
use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use stead_types::Axis;

/// Sees in each place what it is told, and remembers where it looked.
#[derive(Default)]
struct Told {
    axes: std::collections::BTreeMap<String, Axes>,
    looked: Mutex<Vec<String>>,
}

#[async_trait]
impl Observer for Told {
    async fn observe(&self, provider: &dyn Provider, _: &ComputeConfig) -> Result<Axes, String> {
        self.looked.lock().unwrap().push(provider.name().to_owned());
        self.axes
            .get(provider.name())
            .copied()
            .ok_or_else(|| "not told".to_owned())
    }
}

fn all_hold() -> Axes {
    let mut axes = Axes::UNKNOWN;
    Axis::ALL.into_iter().for_each(|axis| axes.set(axis, Some(true)));
    axes
}

fn offers(fakes: &[&Arc<Fake>]) -> Vec<Offer> {
    let offer = |fake: &&Arc<Fake>| Offer {
        provider: Arc::clone(fake) as Arc<dyn Provider>,
        config: ComputeConfig::new(),
    };
    fakes.iter().map(offer).collect()
}

fn fake(name: &str, axes: Axes) -> Arc<Fake> {
    let fake = Fake::new(name);
    *fake.axes.lock().unwrap() = axes;
    Arc::new(fake)
}

fn name(chosen: &Result<Chosen, SelectError>) -> &str {
    chosen.as_ref().map_or("none", |chosen| &chosen.choice.name)
}

#[tokio::test]
async fn nobody_looks_behind_the_first_that_holds_all() {
    let (native, docker) = (fake("native", all_hold()), fake("docker", Axes::UNKNOWN));
    let observer = Told::default();
    let request = Request::automatic(None);
    let chosen = choose(&request, offers(&[&docker, &native]), &observer).await;
    assert_eq!(name(&chosen), "native");
    assert_eq!(docker.probes.load(Ordering::SeqCst), 0);
    assert_eq!(
        *observer.looked.lock().unwrap(),
        [""; 0],
        "it was observed before"
    );
}

#[tokio::test]
async fn what_nobody_looked_at_is_observed_and_what_cannot_be_is_passed_over() {
    let (native, docker) = (fake("native", Axes::UNKNOWN), fake("docker", Axes::UNKNOWN));
    let observer = Told {
        axes: [("docker".to_owned(), all_hold())].into(),
        ..Told::default()
    };
    let request = Request::automatic(None);
    let chosen = choose(&request, offers(&[&native, &docker]), &observer).await;
    assert_eq!(name(&chosen), "docker");
    assert_eq!(*observer.looked.lock().unwrap(), ["native", "docker"]);
    let instance = chosen.unwrap().provision().await.unwrap();
    let selection = &instance.metadata["selection"];
    assert_eq!(selection["fallback"], false);
    let why = selection["passed_over"]["native"].as_str().unwrap();
    assert!(
        why.starts_with("not observed to hold: process_contained"),
        "{why}"
    );
}

#[tokio::test]
async fn one_that_is_gone_right_before_its_use_is_passed_over_for_the_next() {
    let (native, docker) = (fake("native", all_hold()), fake("docker", all_hold()));
    native.missing_from.store(1, Ordering::SeqCst);
    let request = Request::automatic(None);
    let chosen = choose(&request, offers(&[&native, &docker]), &Told::default()).await;
    assert_eq!(name(&chosen), "docker");
    let passed = &chosen
        .as_ref()
        .map(|chosen| chosen.choice.passed_over.clone())
        .unwrap();
    assert_eq!(passed[0].1.to_string(), "it went away");
    docker.missing_from.store(0, Ordering::SeqCst);
    native.probes.store(0, Ordering::SeqCst);
    let error = choose(&request, offers(&[&native, &docker]), &Told::default()).await;
    let told = error.err().unwrap().to_string();
    assert!(
        told.contains("native: it went away") && told.contains("docker: it went away"),
        "{told}"
    );
}

#[tokio::test]
async fn what_cannot_honour_the_configuration_is_not_even_asked() {
    let (native, docker) = (fake("native", all_hold()), fake("docker", all_hold()));
    native.refuses.store(true, Ordering::SeqCst);
    let request = Request::automatic(None);
    assert_eq!(
        name(&choose(&request, offers(&[&native, &docker]), &Told::default()).await),
        "docker"
    );
    assert_eq!(native.probes.load(Ordering::SeqCst), 0);
}

fn any_axes() -> impl Strategy<Value = Axes> {
    prop::collection::vec(prop::option::of(any::<bool>()), 5).prop_map(|held| {
        let mut axes = Axes::UNKNOWN;
        for (axis, held) in Axis::ALL.into_iter().zip(held) {
            axes.set(axis, held);
        }
        axes
    })
}

proptest! {
    /// Whatever is there, is observed, and goes away meanwhile: this host is never chosen without the word for it, and
    /// what is required was observed.
    #[test]
    fn no_sequence_of_looks_ends_on_the_host(
        given in prop::collection::vec((any_axes(), any_axes(), 0..4usize, any::<bool>()), 4),
        isolation in prop_oneof![Just(Isolation::Required), Just(Isolation::Preferred), Just(Isolation::None)],
        unsafe_fallback in any::<bool>(),
        axes in prop::sample::subsequence(Axis::ALL.to_vec(), 0..=5),
    ) {
        let names = ["native", "docker", "local", "mine"];
        let mut observer = Told::default();
        let mut fakes = Vec::new();
        for (name, (known, seen, probes, refuses)) in names.iter().zip(given) {
            let fake = fake(name, known);
            // Three probes and more are never made of one.
            fake.missing_from.store(probes, Ordering::SeqCst);
            fake.refuses.store(refuses, Ordering::SeqCst);
            observer.axes.insert((*name).to_owned(), seen);
            fakes.push(fake);
        }
        let request = Request { isolation, axes: axes.into_iter().collect(), order: Vec::new(), unsafe_fallback };
        let offers = offers(&fakes.iter().collect::<Vec<_>>());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        if let Ok(chosen) = runtime.block_on(choose(&request, offers, &observer)) {
            let name = chosen.offer.provider.name();
            prop_assert_eq!(name, &chosen.choice.name);
            if name == "local" {
                prop_assert!(unsafe_fallback && isolation != Isolation::Required);
            }
            let at = names.iter().position(|other| *other == name).unwrap();
            let known = *fakes[at].axes.lock().unwrap();
            let looked = observer.looked.lock().unwrap().iter().any(|other| other == name);
            let axes = if looked { observer.axes[name] } else { known };
            if isolation == Isolation::Required {
                prop_assert!(request.axes.iter().all(|axis| axes.holds(*axis)));
            }
        }
    }
}
