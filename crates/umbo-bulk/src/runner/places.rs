//! The places for runs of loads in a dispatcher: a run gives its own back if a load waits for one.
//!
//! A run has a place from its begin to its end. If a load has no place, a run is asked to give its own back: a run that
//! waits, or a run whose namespace has two places more than the namespace of the load. Among loads of namespaces with
//! equal numbers of places, the payers share. The run lets its load go at its next step; its journal has all its
//! progress. So loads that wait keep no other load out, and each exchange makes the shares more equal, so that
//! exchanges end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use umbo_types::NamespaceId;

use umbo_loads::LoadRecord;

/// The places of a dispatcher.
#[derive(Debug, Default)]
pub(crate) struct RunPlaces {
    /// Runs by the id of their load.
    runs: Mutex<BTreeMap<String, RunPlace>>,
    /// Told when a run is asked for its place.
    asked: Notify,
}

/// The place of a run.
#[derive(Debug)]
struct RunPlace {
    namespace: NamespaceId,
    /// The report of the load.
    report: NamespaceId,
    payer: String,
    waits: bool,
    /// Id of the load that gets the place next. `None` unless the run was asked for it.
    given_to: Option<String>,
}

/// The places that a namespace and a payer have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shares {
    namespace: usize,
    payer: usize,
}

/// A place that is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct HeldPlace {
    places: Arc<RunPlaces>,
    id: String,
}

impl RunPlaces {
    /// Takes a place for the run of a load.
    pub(crate) fn take(self: &Arc<Self>, id: &str, load: &LoadRecord) -> HeldPlace {
        let place = RunPlace {
            namespace: load.namespace_id(),
            report: load.report_id(),
            payer: load.created_by.clone(),
            waits: false,
            given_to: None,
        };
        self.runs().insert(id.to_owned(), place);
        HeldPlace {
            places: Arc::clone(self),
            id: id.to_owned(),
        }
    }

    /// Returns the number of runs.
    pub(crate) fn len(&self) -> usize {
        self.runs().len()
    }

    /// Returns whether a load has a run.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.runs().contains_key(id)
    }

    /// Returns the places that the namespace and the payer of a load have.
    pub(crate) fn of(&self, load: &LoadRecord) -> Shares {
        Shares::of(&self.runs(), load.namespace_id(), &load.created_by)
    }

    /// Asks a run to give its place back for a load, unless one was asked for it before.
    pub(crate) fn ask_for(&self, id: &str, load: &LoadRecord) {
        let mut runs = self.runs();
        let is_for_it = |place: &RunPlace| place.given_to.as_deref() == Some(id);
        if runs.values().any(is_for_it) {
            return;
        }
        let own = Shares::of(&runs, load.namespace_id(), &load.created_by);
        let rank = |place: &RunPlace| {
            let shares = Shares::of(&runs, place.namespace, &place.payer);
            let is_same = place.namespace == load.namespace_id();
            let has_more = shares.namespace >= own.namespace + 2
                || (is_same || shares.namespace > own.namespace) && shares.payer >= own.payer + 2;
            let may_give = place.given_to.is_none() && (place.waits || has_more);
            may_give.then_some((place.waits, shares))
        };
        let ranked = runs.iter().map(|(run, place)| (rank(place), run));
        let Some((Some(_), run)) = ranked.max() else {
            return;
        };
        let run = run.clone();
        if let Some(place) = runs.get_mut(&run) {
            place.given_to = Some(id.to_owned());
        }
        self.asked.notify_waiters();
    }

    /// Returns whether the run of a load is to give its place back.
    pub(crate) fn is_asked(&self, id: &str) -> bool {
        let runs = self.runs();
        runs.get(id).is_some_and(|place| place.given_to.is_some())
    }

    /// Records whether the run of a load waits.
    pub(crate) fn set_waits(&self, id: &str, waits: bool) {
        if let Some(place) = self.runs().get_mut(id) {
            place.waits = waits;
        }
    }

    /// Records whether the run of the load waits whose report is in a namespace.
    pub(crate) fn set_waits_of(&self, report: NamespaceId, waits: bool) {
        let mut runs = self.runs();
        let place = runs.values_mut().find(|place| place.report == report);
        if let Some(place) = place {
            place.waits = waits;
        }
    }

    /// Waits until a run is asked for its place from now on.
    pub(crate) async fn next_asked(&self) {
        self.asked.notified().await;
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<String, RunPlace>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldPlace {
    /// Gives the place back. Returns whether the run waits, and whether it was asked for the place.
    pub(crate) fn give_back(self) -> (bool, bool) {
        let runs = self.places.runs();
        let place = runs.get(&self.id);
        place.map_or((false, false), |place| {
            (place.waits, place.given_to.is_some())
        })
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        self.places.runs().remove(&self.id);
    }
}

impl Shares {
    fn of(runs: &BTreeMap<String, RunPlace>, namespace: NamespaceId, payer: &str) -> Self {
        let of_namespace = runs.values().filter(|run| run.namespace == namespace);
        let of_payer = runs.values().filter(|run| run.payer == payer);
        Self {
            namespace: of_namespace.count(),
            payer: of_payer.count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use umbo_api::loads::LoadSpec;
    use umbo_types::Timestamp;

    use super::*;

    fn load_of(namespace: u32, payer: &str) -> LoadRecord {
        let (spec, at) = (LoadSpec::default(), Timestamp::from_millis(1));
        LoadRecord::create(&spec, ("n", namespace), (100, 101), (0, 0), payer, at).unwrap()
    }

    /// Returns which of the runs are asked for their places.
    fn asked<'a>(places: &RunPlaces, ids: &[&'a str]) -> Vec<&'a str> {
        let ids = ids.iter().copied();
        ids.filter(|id| places.is_asked(id)).collect()
    }

    #[test]
    fn a_run_that_waits_gives_its_place_to_any_load() {
        let places = Arc::new(RunPlaces::default());
        let ids = ["a", "b"];
        let held = ids.map(|id| places.take(id, &load_of(1, "x")));
        places.ask_for("c", &load_of(1, "x"));
        assert!(asked(&places, &ids).is_empty(), "both work");
        places.set_waits("b", true);
        places.ask_for("c", &load_of(1, "x"));
        places.ask_for("c", &load_of(1, "x"));
        assert_eq!(asked(&places, &ids), ["b"]);
        places.set_waits("a", true);
        places.ask_for("c", &load_of(1, "x"));
        assert_eq!(asked(&places, &ids), ["b"], "one place for one load");
        let ends = held.map(HeldPlace::give_back);
        assert_eq!((ends, places.len()), ([(true, false), (true, true)], 0));
    }

    /// Gives places away until no run is asked; returns the owners of the runs then.
    fn settled(runs: &[(u32, &str)], loads: &[(u32, &str)]) -> Vec<(u32, String)> {
        let places = Arc::new(RunPlaces::default());
        let name = |number: usize| format!("load {number}");
        let all: Vec<_> = runs.iter().chain(loads).collect();
        let load = |number: usize| load_of(all[number].0, all[number].1);
        let mut held: BTreeMap<usize, HeldPlace> = (0..runs.len())
            .map(|number| (number, places.take(&name(number), &load(number))))
            .collect();
        for _ in 0..100 {
            let left: Vec<_> = (0..all.len())
                .filter(|one| !held.contains_key(one))
                .collect();
            let mut has_changed = false;
            for number in left {
                places.ask_for(&name(number), &load(number));
                let asked = held
                    .keys()
                    .find(|run| places.is_asked(&name(**run)))
                    .copied();
                if let Some(run) = asked {
                    assert!(held.remove(&run).unwrap().give_back().1);
                    held.insert(number, places.take(&name(number), &load(number)));
                    has_changed = true;
                }
            }
            if !has_changed {
                let mut owners: Vec<_> = held.keys().map(|run| all[*run]).collect();
                owners.sort_unstable();
                return owners
                    .into_iter()
                    .map(|(of, by)| (*of, (*by).to_owned()))
                    .collect();
            }
        }
        panic!("the runs give way to one another for ever");
    }

    #[test]
    fn namespaces_and_then_payers_share_the_places() {
        let owners = |runs: &[(u32, &str)]| -> Vec<(u32, String)> {
            runs.iter()
                .map(|(of, by)| (*of, (*by).to_owned()))
                .collect()
        };
        let of_one = [(1, "x"); 4];
        assert_eq!(
            settled(&of_one, &[(2, "x")]),
            owners(&[(1, "x"), (1, "x"), (1, "x"), (2, "x")])
        );
        let two = owners(&[(1, "x"), (1, "x"), (2, "x"), (2, "x")]);
        assert_eq!(settled(&of_one, &[(2, "x"); 8]), two);
        let payers = owners(&[(1, "x"), (1, "x"), (1, "y"), (1, "y")]);
        assert_eq!(settled(&of_one, &[(1, "y"); 4]), payers);
        let four = [(1, "x"), (2, "x"), (3, "x"), (4, "x")];
        let one_for_y = owners(&[(1, "x"), (2, "x"), (3, "x"), (5, "y")]);
        assert_eq!(settled(&four, &[(5, "y"), (6, "x")]), one_for_y);
        // Equal shares of payers would cost those of namespaces.
        let mixed = settled(
            &[(1, "a"), (1, "b"), (1, "c"), (2, "d")],
            &[(2, "d"), (1, "e")],
        );
        assert_eq!(mixed.iter().filter(|(of, _)| *of == 1).count(), 2);
    }
}
