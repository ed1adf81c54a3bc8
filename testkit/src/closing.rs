//! Scenes in which a client closes. A busy machine may use up most of the second that closing has.

use redis_concurrent::Error;

/// How often a scene is played at most.
const TIMES: usize = 5;

/// Returns whether a close released everything; `false` if the time ran out before that was confirmed.
///
/// # Panics
///
/// If the close failed with any other error.
#[track_caller]
pub fn released_all(closed: &Result<(), Error>) -> bool {
    let was_late = closed.as_ref().is_err_and(Error::is_outcome_unknown);
    assert!(was_late || closed.is_ok(), "{closed:?}");
    !was_late
}

/// Plays a scene, which returns the result of a close in it, and plays it again if that close ran out of
/// time. Even on the busiest machine, not every close does.
///
/// # Panics
///
/// If none of five closes released everything, or in the cases of [`released_all`].
#[track_caller]
pub fn closes_in_time(mut scene: impl FnMut() -> Result<(), Error>) {
    for _ in 0..TIMES {
        if released_all(&scene()) {
            return;
        }
    }
    panic!("no close of {TIMES} has released everything");
}
