//! Unit tests of `src/engine/call/warning.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;

/// A hold of this file's tests, of which no other has this number.
fn hold(number: u64, left: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> Holds {
    vec![((0, number), Arc::new(move |_| left()))]
}

fn ends_within(warned: &Warned, holds: &Holds) -> CancellationToken {
    warned.ends_within(holds.clone(), &CancellationToken::new(), Duration::ZERO)
}

const LONG: Duration = Duration::from_secs(3600);

/// A renewal shortens a hold after its remaining time was read and before its warning is planned: once it was
/// read by the caller, once by the warning thread.
#[test]
fn a_hold_that_is_shortened_while_it_is_looked_at_is_looked_at_again() {
    for shortened_at in [0, 1] {
        comes_at_once(shortened_at);
    }
}

fn comes_at_once(shortened_at: usize) {
    let (looks, began, number) = (AtomicUsize::new(0), Instant::now(), shortened_at as u64);
    let left = move || {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        if look == shortened_at {
            check_again(&hold(number, || None));
            return Some(LONG);
        }
        let soon = Duration::from_millis(if look < shortened_at { 1 } else { 100 });
        Some(soon.saturating_sub(began.elapsed()))
    };
    let warned = Warned::default();
    let token = ends_within(&warned, &hold(number, left));
    assert!(token.wait_timeout(Duration::from_secs(20)), "the warning is an hour late");
}

/// What a hold is asked costs nothing for the others.
#[test]
fn one_hold_is_looked_at_alone() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counts = requests.clone();
    let others = hold(10, move || {
        counts.fetch_add(1, Ordering::Relaxed);
        Some(LONG)
    });
    let (warned, mine) = (Warned::default(), hold(11, || Some(LONG)));
    let _tokens = [&others, &mine].map(|holds| ends_within(&warned, holds));
    for _ in 0..100 {
        check_again(&mine);
        drop(ends_within(&Warned::default(), &mine));
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[test]
fn nothing_is_kept_of_a_hold_that_has_ended_nor_of_a_token_that_was_dropped() {
    let ended = Arc::new(AtomicUsize::new(0));
    let ends = ended.clone();
    let held = hold(20, move || (ends.load(Ordering::Relaxed) == 0).then_some(LONG));
    let count = |holds: &Holds| {
        let warnings = CURRENT.get();
        let state = warnings.state.lock();
        state.warnings.iter().filter(|it| it.hold == holds[0].0).count()
    };
    let (outer, inner) = (Warned::default(), Warned::default());
    let kept = ends_within(&outer, &held);
    for _ in 0..1000 {
        drop(ends_within(&inner, &held));
    }
    assert!(count(&held) < 10, "{}", count(&held));
    drop(inner);
    assert!(count(&held) > 0, "the hold lasts as long as its last guard");
    ended.store(1, Ordering::Relaxed);
    drop(outer);
    assert_eq!(count(&held), 0);
    assert!(!kept.is_cancelled(), "a release is no loss");
    // The last token goes, and its hold is looked at for another reason.
    let held = hold(21, || Some(LONG));
    let guard = Warned::default();
    drop(ends_within(&guard, &held));
    check_again(&held);
    assert_eq!(count(&held), 0);
}
