//! Unit tests of `src/engine/warning.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;

/// The thread of the warnings has read what is left of a hold, and a renewal shortens that before the thread plans the
/// warning again.
#[test]
fn a_hold_that_is_shortened_while_it_is_looked_at_is_looked_at_again() {
    let looks = AtomicUsize::new(0);
    let left = move |_| {
        let left = match looks.fetch_add(1, Ordering::Relaxed) {
            // Planned: the thread looks at it at once.
            0 => Duration::from_millis(1),
            1 => {
                look_again();
                Duration::from_secs(3600)
            }
            _ => Duration::ZERO,
        };
        Some(left)
    };
    let token = ends_within(Box::new(left), CancellationToken::new(), Duration::ZERO);
    let began = Instant::now();
    while !token.is_cancelled() {
        assert!(began.elapsed() < Duration::from_secs(20), "the warning is an hour late");
        std::thread::sleep(Duration::from_millis(1));
    }
}
