//! The checker finds what is wrong with made-up histories, and nothing in a good one.

use std::collections::BTreeMap;

use crate::history::checker::{Evidence, MOST_UNEXPLAINED, Shadow, check};
use crate::history::counter::Tally;
use crate::history::holds::History;
use crate::history::log::{Event, Line, Who};

/// A history of one lock, told line by line.
#[derive(Default)]
struct Story(Vec<Line>, Evidence);

impl Story {
    fn line(mut self, at: u64, process: u64, round: u64, event: Event) -> Self {
        self.0.push(Line { at, who: Who { process, thread: 1, round }, event });
        self
    }

    /// A round: asks at `called`, holds from `held` for `left`, and gives back at `release`.
    fn round(self, process: u64, token: u64, called: u64, held: u64, left: u64, release: u64) -> Self {
        let still = (held + left).saturating_sub(release);
        self.asks(process, token, called)
            .line(held, process, token, Event::Held { token, left })
            .line(release, process, token, Event::Release { left: still })
            .line(release + 5, process, token, Event::Released { how: "ok".into() })
    }

    fn asks(self, process: u64, round: u64, called: u64) -> Self {
        let event = Event::Called { lock: "a".into(), form: "Lock".into() };
        self.line(called, process, round, event)
    }

    fn shadow(mut self, from: u64, until: u64) -> Self {
        self.1.shadows.push(Shadow { span: (from, until), what: "a fault".into() });
        self
    }

    fn tally(mut self, value: u64, writes: &[(u64, u64)]) -> Self {
        self.1.tallies.push(Tally { name: "a".into(), value, writes: writes.into() });
        self
    }

    fn check(mut self) -> Vec<String> {
        self.0.sort_by_key(|line| line.at);
        let end = self.0.last().map_or(0, |line| line.at);
        self.1.history = History::of(self.0, &BTreeMap::new(), end);
        check(&self.1)
    }

    /// There is exactly one thing wrong with it, and it is this.
    #[track_caller]
    fn fails(self, what: &str) {
        let wrong = self.check();
        assert!(wrong.len() == 1 && wrong[0].contains(what), "{wrong:#?}");
    }
}

/// Two processes that take turns.
fn good() -> Story {
    Story::default().round(1, 10, 0, 100, 1000, 200).round(2, 20, 50, 200, 1000, 300)
}

#[test]
fn nothing_is_wrong_with_a_good_history() {
    assert_eq!(good().tally(2, &[(10, 0), (20, 1)]).check(), [""; 0]);
    // Released, but it took its time to say so; and somebody who never got in.
    assert_eq!(good().round(1, 30, 300, 301, 100, 301).asks(2, 31, 302).check(), [""; 0]);
}

#[test]
fn two_at_once_are_found() {
    Story::default().round(1, 10, 0, 100, 1000, 200).round(2, 20, 50, 199, 1000, 300).fails("two valid");
    // Not only neighbours.
    let wrong = Story::default()
        .round(1, 10, 0, 100, 5000, 900)
        .round(2, 20, 50, 200, 1000, 300)
        .round(3, 30, 50, 400, 1000, 500)
        .check();
    assert_eq!(wrong.len(), 2, "{wrong:#?}");
}

#[test]
fn a_dead_process_keeps_what_it_was_promised() {
    let dead = || Story::default().asks(1, 10, 0).line(100, 1, 10, Event::Held { token: 10, left: 1000 });
    dead().round(2, 20, 50, 1099, 1000, 1200).fails("two valid");
    assert_eq!(dead().round(2, 20, 50, 1100, 1000, 1200).check(), [""; 0]);
}

#[test]
fn a_hold_that_was_over_is_in_nobodys_way() {
    // Its lease was over at its release.
    assert_eq!(
        Story::default().round(1, 10, 0, 100, 50, 900).round(2, 20, 50, 150, 100, 200).check(),
        [""; 0]
    );
    // And here before it could say that it held.
    let late = Story::default().round(2, 20, 50, 150, 100, 200).round(1, 10, 0, 160, 0, 170);
    assert_eq!(late.check(), [""; 0]);
}

#[test]
fn tokens_that_fall_or_come_again_are_found() {
    Story::default().round(1, 20, 0, 100, 1000, 200).round(2, 10, 50, 200, 1000, 300).fails("no higher");
    let again = Story::default().round(1, 10, 0, 100, 1000, 200).round(2, 10, 50, 200, 1000, 300).check();
    assert!(again.iter().any(|it| it.contains("given twice")), "{again:#?}");
}

#[test]
fn a_lost_count_is_found() {
    good().tally(1, &[(10, 0), (20, 1)]).fails("after 2 accepted");
    let over = good().tally(2, &[(10, 1), (20, 1)]).check();
    assert!(over.iter().any(|it| it.contains("both written over 1")), "{over:#?}");
    good().line(150, 1, 10, Event::Wrote { read: 0 }).tally(1, &[(20, 0)]).fails("not there");
}

#[test]
fn a_broken_promise_is_found() {
    let lost = |at| {
        let how = "LeaseLost \"a\": lease lost".to_owned();
        Story::default()
            .asks(1, 10, 0)
            .line(100, 1, 10, Event::Held { token: 10, left: 1000 })
            .line(900, 1, 10, Event::Release { left: 200 })
            .line(at, 1, 10, Event::Released { how })
    };
    lost(1099).fails("was promised");
    assert_eq!(lost(1100).check(), [""; 0]);
}

#[test]
fn a_wait_without_a_reason_is_found() {
    let late = 1000 + MOST_UNEXPLAINED;
    let story = || good().round(1, 30, 900, late, 1000, late + 1);
    story().fails("without a reason");
    assert_eq!(story().shadow(1000, 200_000).check(), [""; 0]);
    // Held by somebody else.
    assert_eq!(story().round(2, 25, 301, 400, late - 400, late).check(), [""; 0]);
    // Never let in at all.
    good().asks(1, 30, 900).round(2, 40, late, late + 1, 9, late + 2).fails("without a reason");
}

#[test]
fn a_waiter_passed_again_and_again_is_found() {
    let story = || {
        let others = (1..=17).fold(Story::default(), |story, n| {
            let at = 500_000 + n * 10_000;
            story.round(2, n << 12, at, at, 10_000, at + 9_999)
        });
        others.round(1, 18 << 12, 0, 700_000, 1000, 700_100)
    };
    story().fails("passed by 17");
    assert_eq!(story().shadow(0, 520_000).check(), [""; 0]);
}

/// A round that ends with an error, told so many times.
fn ending(times: u64, form: &str, how: &str) -> Story {
    let called = || Event::Called { lock: "a".into(), form: form.into() };
    let ended = || Event::Ended { how: how.into() };
    (30..30 + times).fold(good(), |story, n| story.line(300, 1, n, called()).line(301, 1, n, ended()))
}

#[test]
fn what_must_not_be_said_is_found() {
    for fine in ["none", "Cancelled \"a\": cancelled"] {
        assert_eq!(ending(9, "Lock", fine).check(), [""; 0]);
    }
    ending(1, "Lock", "Protocol \"a\"").fails("must not end");
    good().line(206, 1, 10, Event::Released { how: "NotOwner \"a\"".into() }).fails("must not be");
    good().line(150, 1, 10, Event::Refused { left: 1 }).fails("must not be");
    good().line(150, 1, 10, Event::Odd { what: "two tokens".into() }).fails("two tokens");
}

#[test]
fn silence_without_a_fault_is_found() {
    let silent = |times| ending(times, "Lock", "Unavailable \"a\"");
    assert_eq!(silent(3).check(), [""; 0]);
    assert_eq!(silent(4).check().len(), 4);
    assert_eq!(silent(4).shadow(250, 302).check(), [""; 0]);
    assert_eq!(ending(4, "TryLockFor", "Unavailable \"a\"").check(), [""; 0]);
    let unknown = || Event::Released { how: "OutcomeUnknown \"a\"".into() };
    assert_eq!(silent(3).line(206, 1, 10, unknown()).check().len(), 4);
    assert_eq!(silent(3).line(206, 1, 10, unknown()).shadow(150, 207).check(), [""; 0]);
}
