//! Unit tests of `src/engine/call/backoff.rs`.

use super::*;

const SLOT: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(20);

#[test]
fn pauses_grow_to_a_bound_and_no_two_who_fail_together_go_on_alike() {
    let mut crowd: Vec<_> = (0..200).map(|_| Backoff::default()).collect();
    for n in 1..=20 {
        let bound = (SLOT * (1 << n.min(DOUBLINGS))).min(LONGEST);
        let mut pauses: Vec<_> = crowd.iter_mut().map(|b| b.next(SLOT, LONGEST)).collect();
        pauses.sort();
        assert!(pauses[199] < bound, "{n}: {pauses:?}");
        // If 200 are spread evenly, the chance that one half contains none of them is 10^-24.
        assert!(pauses[199] > bound / 2 && pauses[0] < bound / 2, "{n}: {pauses:?}");
        pauses.dedup();
        assert!(pauses.len() > 150, "{n}: {pauses:?}");
    }
}

#[test]
fn a_slot_is_the_shortest_and_none_or_an_endless_one_does_no_harm() {
    let mut backoff = Backoff::default();
    for _ in 0..100 {
        assert!(backoff.next(Duration::MAX, LONGEST) < LONGEST);
    }
    for _ in 0..100 {
        assert!(backoff.next(SLOT, LONGEST) < SLOT * (1 << DOUBLINGS));
        assert!(backoff.next(LONGEST, Duration::MAX) < SLOT * (1 << DOUBLINGS));
    }
    for _ in 0..100 {
        assert_eq!(backoff.next(Duration::ZERO, LONGEST), Duration::ZERO);
    }
}
