//! Explores the states of a model.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

/// How many states of a large world are explored, unless `MODELS_STATES` says otherwise.
const MOST_OF_LARGE: usize = 80_000_000;

/// Explores the first, smaller world or, with `MODELS=large` (`make models`), the others, up to
/// `MODELS_STATES` states of each. Without faults, everything that the threads of any of them want to do must
/// get done: `goes_through` checks that.
pub(super) fn check<W>(small: W, large: impl IntoIterator<Item = W>, goes_through: fn(&W) -> bool)
where
    W: Model + Clone + Debug + Send + Sync + 'static,
    W::State: Clone + Hash + Debug + PartialEq + Send + Sync,
    W::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let large: Vec<W> = large.into_iter().collect();
    for world in std::iter::once(&small).chain(&large) {
        assert!(goes_through(world), "nobody gets anywhere in {world:?}");
    }
    if std::env::var("MODELS").is_ok_and(|v| v == "large") {
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        let most = std::env::var("MODELS_STATES");
        let most = most.map_or(MOST_OF_LARGE, |n| n.parse().expect("MODELS_STATES is a number"));
        large.iter().for_each(|world| explore(world, threads, most));
    } else {
        explore(&small, 1, 2_000_000);
    }
}

/// Explores depth first, which needs little memory; if a property does not hold, again breadth first, to find
/// the shortest way there.
fn explore<W>(world: &W, threads: usize, most: usize)
where
    W: Model + Clone + Debug + Send + Sync + 'static,
    W::State: Clone + Hash + Debug + PartialEq + Send + Sync,
    W::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = |most| {
        let checker = world.clone().checker().threads(threads).target_state_count(most);
        checker.finish_when(HasDiscoveries::AnyFailures)
    };
    let done = checker(most).spawn_dfs().join();
    let (states, different) = (done.state_count(), done.unique_state_count());
    let extent = if states < most { "complete" } else { "cut off" };
    println!("{extent}: {states} states, {different} different, {} steps deep: {world:?}", done.max_depth());
    if !done.discoveries().is_empty() {
        let mut found = checker(most.min(2_000_000)).spawn_bfs().join().discoveries();
        if found.is_empty() {
            found = done.discoveries();
        }
        let found = found.into_iter();
        let found = found.map(|(property, path)| (path.clone().into_actions().len(), property, path));
        if let Some((steps, property, path)) = found.min_by_key(|(steps, property, _)| (*steps, *property)) {
            panic!("not {property}, in {steps} steps: {path}");
        }
    }
}
