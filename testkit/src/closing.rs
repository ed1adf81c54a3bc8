//! Scenes in which a client closes: a busy machine may take most of the second that closing has.

use redis_concurrent::Error;

/// How often a scene is played at most.
const TIMES: usize = 5;

/// Whether a close says that it has released everything; if not, that there was no time to hear so.
///
/// # Panics
///
/// If it failed with any other error.
#[track_caller]
pub fn released_all(closed: &Result<(), Error>) -> bool {
    let was_late = closed.as_ref().is_err_and(Error::is_outcome_unknown);
    assert!(was_late || closed.is_ok(), "{closed:?}");
    !was_late
}

/// Plays a scene, which returns what a close in it has said, and again where that was late: not each time, on the busiest
/// machine.
///
/// # Panics
///
/// If no close of five has released everything, or as [`released_all`].
#[track_caller]
pub fn closes_in_time(mut scene: impl FnMut() -> Result<(), Error>) {
    for _ in 0..TIMES {
        if released_all(&scene()) {
            return;
        }
    }
    panic!("no close of {TIMES} has released everything");
}
