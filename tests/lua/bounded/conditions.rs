//! 10,000 waiters for a condition's signal.

use redis_concurrent::kinds::{Kind, Reentrant};

use crate::bounded::many::{Many, WAITER_TIMEOUT, WAITERS, id, in_short, owned};
use crate::rig::{PREFIX, RECORD, texts};

/// The client `w` waits with so many threads, and `h:1` holds the lock.
fn waited_for() -> Many {
    let mut it = Many::of("reentrant", Reentrant::RULE);
    // A hold of each, and a wait that gives it up.
    let (take, wait) = (it.scripts.acquire.clone(), it.scripts.wait_for.clone());
    let both = (0..WAITERS).flat_map(|n| {
        let (held, waits) = (id("held", n), id("w", n));
        let takes = [&held, "30000", PREFIX, WAITER_TIMEOUT, "try", "", RECORD];
        let waits = [&waits, "30000", PREFIX, WAITER_TIMEOUT, "wait", "", RECORD, &held, "", "full"];
        [(take.clone(), owned(&takes)), (wait.clone(), owned(&waits))]
    });
    it.fill(both);
    assert_eq!(it.ask("try", "try", "h:1", "")[0], "1");
    it
}

/// `by` signals until no waiter is left that the signal is for; returns how many there were.
fn signals(it: &mut Many, by: &str, what: &'static str) -> usize {
    let source = it.scripts.signal.clone();
    let (mut all, mut from) = (0, String::new());
    it.until(what, |it, _| {
        let answer = texts(&it.run(what, &source, &[by, "0", PREFIX, WAITER_TIMEOUT, "full", what, &from]));
        all += answer[0].parse::<usize>().unwrap();
        from = answer.get(1).cloned().unwrap_or_default();
        from.is_empty()
    });
    all
}

/// `x:1` waits behind all of them by the hold of `h:1`, and alone of them is alive; `h:2` has the lock.
fn all_but_the_last_die(it: &mut Many) {
    let wait = it.scripts.wait_for.clone();
    it.run("wait", &wait, &["x:1", "30000", PREFIX, WAITER_TIMEOUT, "wait", "", RECORD, "h:1", "", "full"]);
    assert_eq!(it.ask("try", "try", "h:2", "")[0], "1");
}

/// Its heartbeat.
fn last_beats(it: &mut Many) -> Vec<String> {
    let wait = it.scripts.wait_for.clone();
    texts(&it.run(
        "keep",
        &wait,
        &["x:1", "30000", PREFIX, WAITER_TIMEOUT, "keep", "", RECORD, "", "", "full"],
    ))
}

#[test]
fn ten_thousand_are_counted_and_signalled_in_pieces() {
    in_short(|| {
        let mut it = waited_for();
        let _inbox = it.hears("w");
        assert_eq!(signals(&mut it, "h:1", "count"), WAITERS);
        assert_eq!(signals(&mut it, "h:1", "one"), 1);
        assert_eq!(signals(&mut it, "h:1", "all"), WAITERS - 1);
        assert_eq!(it.waiting(), WAITERS);
        let queue = it.queue();
        assert_eq!((&*queue[0], &*queue[WAITERS - 1]), ("w:0", &*id("w", WAITERS - 1)));
        it
    });
}

#[test]
fn a_signal_passes_thousands_of_silent_ones_in_pieces() {
    in_short(|| {
        let mut it = waited_for();
        let _inbox = it.hears("x");
        all_but_the_last_die(&mut it);
        it.all_are_silent(true);
        assert_eq!(last_beats(&mut it)[0], "0");
        assert_eq!(signals(&mut it, "h:2", "one"), 1);
        assert_eq!(it.queue(), ["x:1"]);
        it
    });
}

#[test]
fn the_signal_of_one_that_quits_passes_thousands_of_silent_ones_in_pieces() {
    in_short(|| {
        let mut it = waited_for();
        let _inboxes = [it.hears("w"), it.hears("x")];
        all_but_the_last_die(&mut it);
        assert_eq!(signals(&mut it, "h:2", "one"), 1);
        assert_eq!(it.queue(), ["w:0"]);
        it.all_are_silent(true);
        let quit = it.scripts.quit.clone();
        assert_eq!(texts(&it.run("quit", &quit, &["w:0", "0", PREFIX, WAITER_TIMEOUT, "0", "full"])), ["0"]);
        assert_eq!(it.leaves("leave", "h:2"), "1");
        // The heartbeats of the last one are what carries the signal on to it.
        it.until("keep", |it, _| last_beats(it)[0] == "1");
        it
    });
}
