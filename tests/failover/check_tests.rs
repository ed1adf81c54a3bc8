//! The check finds what is wrong with made-up histories, and nothing in a good one.

use std::collections::BTreeMap;

use crate::failover::check::{Counts, Evidence, Failover, check};
use crate::history::holds::History;
use crate::history::log::{Event, Line, Who};

const S: u64 = 1_000_000;

#[derive(Default)]
struct Story(Vec<Line>, Evidence);

impl Story {
    fn line(mut self, at: u64, process: u64, round: u64, event: Event) -> Self {
        self.0.push(Line { at, who: Who { process, thread: 1, round }, event });
        self
    }

    /// Process and round, the lock, when it asked, held, released, and what became of that.
    fn hold(
        self,
        who: (u64, u64),
        lock: &str,
        token: u64,
        [called, held, released]: [u64; 3],
        how: &str,
    ) -> Self {
        self.unlocked_in(who, lock, token, [called, held, released, released + 5], how)
    }

    /// The same, and when that was known.
    fn unlocked_in(self, who: (u64, u64), lock: &str, token: u64, at: [u64; 4], how: &str) -> Self {
        let ((process, round), [called, held, released, known]) = (who, at);
        let left = if how == "ok" { 4 * S } else { 0 };
        self.line(called, process, round, Event::Called { lock: lock.into(), form: "lock".into() })
            .line(held, process, round, Event::Held { token, left: 4 * S })
            .line(released, process, round, Event::Release { left })
            .line(known, process, round, Event::Released { how: how.into() })
    }

    fn failover(mut self, from: u64, settled: u64, until: u64) -> Self {
        self.1.failovers.push(Failover {
            unsettled: (from, settled),
            costs: (from, until),
            parts: false,
            what: "Kill".into(),
        });
        self
    }

    /// In the failovers so far clients are cut off together with the former primary.
    fn parted(mut self) -> Self {
        self.1.failovers.iter_mut().for_each(|it| it.parts = true);
        self
    }

    #[track_caller]
    fn gives(mut self, is: impl Fn(&Counts) -> bool, wrong: &[&str]) {
        self.0.sort_by_key(|line| line.at);
        self.1.history = History::of(self.0, &BTreeMap::new(), 60 * S);
        let (counts, found) = check(&self.1);
        assert!(is(&counts), "{counts:?}");
        assert_eq!(found.len(), wrong.len(), "{found:?}");
        for (found, why) in found.iter().zip(wrong) {
            assert!(found.contains(why), "{found}");
        }
    }
}

fn story() -> Story {
    Story::default()
}

#[test]
fn a_good_one_has_nothing_wrong() {
    let good = story()
        .hold((1, 1), "a", 1, [0, 10, 20], "ok")
        .hold((2, 1), "a", 2, [5, 30, 40], "ok")
        .hold((1, 2), "rw/read", 0, [50, 60, 90], "ok")
        .hold((2, 2), "rw/read", 0, [50, 65, 90], "ok")
        .hold((1, 3), "s", 0, [91, 92, 99], "ok")
        .hold((2, 3), "s", 0, [91, 93, 99], "ok");
    good.gives(|it| (it.holds, it.double_holds, it.untold, it.lost_wakeups) == (6, 0, 0, 0), &[]);
}

#[test]
fn two_at_once_are_seen_in_every_kind() {
    for (one, other) in
        [("a", "a"), ("rw/write", "rw/write"), ("rw/read", "rw/write"), ("rw/write", "rw/read")]
    {
        let both = story().hold((1, 1), one, 1, [0, 10, 30], "ok").hold((2, 1), other, 2, [0, 20, 40], "ok");
        both.gives(|it| (it.double_holds, it.untold) == (1, 1), &["no failover was near"]);
    }
    let three = (1..=3).fold(story(), |it, n| it.hold((n, 1), "s", 0, [0, 10 + n, 40], "ok"));
    three.gives(|it| it.double_holds == 1, &["no failover was near"]);
}

#[test]
fn in_a_failover_two_at_once_must_be_told_and_their_tokens_rise() {
    const GRANT: u64 = 1 << 12;
    let first = |token: u64, how: &str| {
        story().failover(S, 3 * S, 9 * S).hold((1, 1), "a", token * GRANT, [S, S + 10, 2 * S], how)
    };
    let both = |tokens: [u64; 2], how: [&str; 2]| {
        first(tokens[0], how[0]).hold((2, 1), "a", tokens[1] * GRANT, [S, S + 20, S + 30], how[1])
    };
    let lost = |it: Story, at: u64, process: u64| {
        it.line(at, process, 0, Event::Lost { lock: "a".into(), why: "Expired".into() })
    };
    both([1, 2], ["LeaseLost x", "ok"]).gives(|it| (it.double_holds, it.untold) == (1, 0), &[]);
    both([2, 1], ["LeaseLost x", "ok"]).gives(|it| it.untold == 1, &["no higher token"]);
    both([1, 2], ["ok"; 2]).gives(|it| it.untold == 1, &["neither of them was told"]);
    // The later one may have come in at a server whose time is over. The earlier one knows nothing of it.
    both([1, 2], ["ok", "LeaseLost x"]).gives(|it| it.untold == 1, &["only the later one was told"]);
    // Its observer may be told; not before it held, nor long after the failover, nor that of another process.
    let heard = |at, process| lost(both([1, 2], ["ok"; 2]), at, process);
    heard(S + 15, 1).gives(|it| (it.double_holds, it.untold) == (1, 0), &[]);
    for (at, process) in [(S + 5, 1), (3 * S + 1, 1), (S + 15, 2)] {
        heard(at, process).gives(|it| it.untold == 1, &["was told"]);
    }
    // What was handed on in its process was lost with it.
    let handed_on =
        both([1, 2], ["ok"; 2]).hold((1, 2), "a", GRANT + 1, [S, 2 * S, 2 * S + 5], "LeaseLost x");
    handed_on.gives(|it| (it.double_holds, it.untold) == (1, 0), &[]);
}

#[test]
fn of_clients_that_are_cut_off_none_goes_on_beyond_the_limit() {
    let parted = || story().failover(S, 3 * S, 9 * S).parted();
    let long = |until: u64, how: &str| parted().hold((2, 1), "a", 1, [S, S + 10, until], how);
    let beside = |it: Story, held: u64, until: u64| it.hold((1, 1), "a", 2, [S, held, until], "ok");
    // Either is over, whoever was first; or told.
    beside(long(4 * S, "ok"), 2 * S, 2 * S + 5).gives(|it| (it.double_holds, it.untold) == (1, 0), &[]);
    beside(long(2 * S, "ok"), S + 20, 4 * S).gives(|it| (it.double_holds, it.untold) == (1, 0), &[]);
    beside(long(4 * S, "LeaseLost x"), 2 * S, 4 * S).gives(|it| (it.double_holds, it.untold) == (1, 0), &[]);
    beside(long(4 * S, "ok"), 2 * S, 4 * S).gives(|it| it.untold == 1, &["neither of them was told"]);
    beside(long(5 * S, "LeaseLost x"), 3 * S + 1, 4 * S)
        .gives(|it| it.untold == 1, &["no failover was near"]);
}

#[test]
fn of_too_many_with_permits_so_many_must_be_told() {
    let three = |how: [&str; 3]| {
        (1..).zip(how).fold(story().failover(S, 3 * S, 9 * S), |it, (n, how)| {
            it.hold((n, 1), "s", 0, [S, S + 10 + n, S + 40], how)
        })
    };
    three(["ok", "LeaseLost x", "ok"]).gives(|it| (it.double_holds, it.untold) == (1, 0), &[]);
    three(["ok"; 3]).gives(|it| it.untold == 1, &["neither of them was told"]);
}

#[test]
fn a_wait_needs_a_reason() {
    let long = |story: Story| story.hold((1, 1), "a", 1, [0, 10 * S, 10 * S + 5], "ok");
    long(story()).gives(|it| it.lost_wakeups == 1, &["without a reason"]);
    long(story().failover(S, 2 * S, 9 * S)).gives(|it| it.longest_wait_ms == 10_000, &[]);
    let mut stood_still = story();
    stood_still.1.stalls.push((S, 9 * S));
    long(stood_still).gives(|it| it.lost_wakeups == 0, &[]);
    // Nobody waits for a process that ended without a word.
    let open = story().line(0, 1, 1, Event::Called { lock: "a".into(), form: "lock".into() });
    open.gives(|it| it.lost_wakeups == 1, &["without a reason"]);
}

#[test]
fn a_wait_may_be_longer_where_all_requests_are() {
    let waits = |time: u64, request: u64| {
        let hold = |it: Story, n: u64| {
            it.unlocked_in((2, n), "b", n, [n * S, n * S, n * S + 10, n * S + 10 + request], "ok")
        };
        let others = (1..=20).fold(story(), hold);
        others.hold((1, 1), "a", 1, [0, time, time + 5], "ok")
    };
    waits(5 * S, S / 100).gives(|it| it.lost_wakeups == 1, &["without a reason"]);
    waits(5 * S, S / 2).gives(|it| it.lost_wakeups == 0, &[]);
    waits(7 * S, S / 2).gives(|it| it.lost_wakeups == 1, &["more than 6000 ms, without a reason"]);
}

#[test]
fn nobody_is_passed_again_and_again() {
    let passed = |times: u64| {
        let others = (0..times).fold(story(), |it, n| {
            it.hold((2, n + 1), "a", n + 1, [n * S / 10, n * S / 10 + 5, n * S / 10 + 10], "ok")
        });
        others.hold((1, 1), "a", times + 1, [0, times * S / 10, times * S / 10 + 5], "ok")
    };
    passed(40).gives(|it| it.lost_wakeups == 0, &[]);
    passed(60).gives(|it| it.lost_wakeups == 1, &["passed by"]);
}

#[test]
fn a_signal_wakes() {
    let waits = |signalled: u64, how: &str| {
        story()
            .line(0, 1, 1, Event::Called { lock: "q/some".into(), form: "await".into() })
            .line(8 * S, 1, 1, Event::Ended { how: how.into() })
            .line(signalled, 2, 1, Event::Called { lock: "q/signal".into(), form: "signal".into() })
            .line(signalled + 5, 2, 1, Event::Ended { how: "ok".into() })
    };
    waits(2 * S, "timeout").gives(|it| it.lost_wakeups == 1, &["without a reason"]);
    waits(2 * S, "timeout").failover(S, 2 * S, 7 * S).gives(|it| it.lost_wakeups == 0, &[]);
    waits(7 * S, "woken").gives(|it| it.lost_wakeups == 0, &[]);
}
