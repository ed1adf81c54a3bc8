//! How the work grows with the number of locks, waiters and processes: a simulation of many processes at one
//! primary, in simulated time.
//!
//! The decisions are made by the real state machine, one
//! [`LockState`](crate::engine::state::lock_state::LockState) for each lock of each process, over the fake
//! Redis of [`super::small_redis`]. The network, the scheduling of threads and the cost of requests to the
//! primary are simulated, with measured costs (`costs.rs`). `points.rs` lists what is both measured and
//! simulated. `make scale` measures it on this machine, on a real server and with the library as a user runs
//! it (`measure.rs`), and writes `measured.txt` and the tables of `docs/design/scale.md`; a test here fails if a
//! simulated figure differs from the measured one by more than 20 %, or if the page says anything else
//! (`page.rs`).

mod costs;
mod figures;
mod fleet;
mod line;
mod measure;
mod page;
mod plan;
mod points;
mod primary;
mod scene;
mod seen;

use self::costs::Costs;
use self::fleet::Fleet;
use self::scene::{Scene, ms};
use self::seen::Seen;
use crate::engine::random::first_seed;

/// Simulates a scene, and returns what was counted.
fn simulate(scene: &Scene, costs: &Costs, seed: u64) -> Seen {
    Fleet::new(scene, costs, seed).run()
}

#[test]
fn one_seed_is_one_outcome() {
    let (scene, costs) = (Scene { hold: ms(2), think: ms(20), ..Scene::contended(8, 1) }, Costs::default());
    let seed = first_seed();
    println!("SEED={seed}");
    let [one, again, other] = [seed, seed, seed + 1].map(|seed| simulate(&scene, &costs, seed));
    assert_eq!(format!("{one:?}"), format!("{again:?}"));
    assert_ne!(format!("{one:?}"), format!("{other:?}"));
    assert!(one.acquisitions > 100, "{one:?}");
}

/// What follows from the protocol, whatever anything costs and in whichever order it happens.
#[test]
fn what_the_protocol_promises() {
    let (costs, seed) = (Costs::default(), first_seed());
    println!("SEED={seed}");
    for clients in [2, 16] {
        let seen = simulate(&Scene::contended(clients, 1), &costs, seed);
        let each = seen.requests_an_acquisition();
        assert!((1.9..2.1).contains(&each), "{clients}: {each} requests, {seen:?}");
        // Each acquisition was announced by one message.
        assert!((0.9..=1.01).contains(&seen.messages_an_acquisition()), "{seen:?}");
    }
    let seen = simulate(&Scene::held(50, 100, ms(3000)), &costs, seed);
    assert_eq!((seen.lost, seen.acquisitions), (0, 0), "{seen:?}");
    let each = seen.renewals as f64 / seen.seconds / 5000.0;
    assert!((0.95..1.05).contains(&each), "{each} renewals a second of each lock");
}

/// A primary that is asked for more than it can do stretches the renewal period, and then loses holds.
#[test]
fn too_many_holds_are_lost() {
    let slow = Costs { renewal: 200_000, ..Costs::default() };
    let lost = |locks| simulate(&Scene::held(20, locks, ms(3000)), &slow, first_seed()).lost;
    // It can do at most 5,000 renewals a second.
    assert_eq!(lost(200), 0);
    assert!(lost(2_000) > 1_000);
}
