//! Unit tests of `src/engine/warning.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;

/// A renewal shortens a hold after its remaining time was read and before its warning is planned: once it was
/// read by the caller, once by the warning thread.
#[test]
fn a_hold_that_is_shortened_while_it_is_looked_at_is_looked_at_again() {
    for shortened_at in [0, 1] {
        comes_at_once(shortened_at);
    }
}

fn comes_at_once(shortened_at: usize) {
    let looks = AtomicUsize::new(0);
    let left = move |_| {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        if look == shortened_at {
            look_again();
            return Some(Duration::from_secs(3600));
        }
        Some(if look > shortened_at { Duration::ZERO } else { Duration::from_millis(1) })
    };
    let token = ends_within(Box::new(left), CancellationToken::new(), Duration::ZERO);
    let began = Instant::now();
    while !token.is_cancelled() {
        assert!(began.elapsed() < Duration::from_secs(20), "the warning is an hour late");
        std::thread::sleep(Duration::from_millis(1));
    }
}
