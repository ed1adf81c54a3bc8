//! Unit tests of `src/clock.rs`.

use super::*;

#[test]
fn an_enormous_wait_means_never() {
    assert_eq!(Moment::now().after(Duration::MAX), Moment::NEVER);
    assert_eq!(
        Moment::NEVER.instant().is_none(),
        Instant::now().checked_add(Duration::from_nanos(u64::MAX)).is_none()
    );
}

#[test]
fn the_latest_moment_never_goes_back() {
    let (latest, now) = (LatestMoment::default(), Moment::now());
    assert_eq!(latest.get(), Moment::BEGINNING);
    latest.put(now);
    latest.put(now.before(Duration::from_secs(1)));
    assert_eq!(latest.get(), now);
}

#[test]
fn moments_and_instants_agree() {
    let wait = crate::wait::Wait::until(Instant::now() + Duration::from_secs(5));
    let d = wait.deadline.since(Moment::now());
    assert!(d > Duration::from_secs(4) && d <= Duration::from_secs(5), "{d:?}");
}
