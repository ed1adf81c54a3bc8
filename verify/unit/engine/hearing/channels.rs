//! Unit tests of `src/engine/hearing/inbox.rs`.

use std::cell::RefCell;

use super::*;
use crate::error::{Error, ErrorKind};

fn boxed(stems: &[&str]) -> Vec<Box<str>> {
    stems.iter().map(|stem| (*stem).into()).collect()
}

#[test]
fn a_channel_is_heard_from_its_confirmation_to_its_end() {
    let (channels, now) = (Channels::default(), Moment::now());
    assert!(channels.request("a", 1, now) && channels.request("a", 2, now));
    assert_eq!((channels.calls(), channels.calls()), (Some(None), None));
    assert_eq!(channels.take_requested(), boxed(&["a"]));
    assert!(!channels.is_subscribed("a") && !channels.request("a", 1, now));
    assert_eq!(channels.confirmed("a", |_| ()), [1, 2]);
    assert!(channels.is_subscribed("a") && !channels.is_subscribed("b"));
    assert_eq!(channels.calls(), Some(Some("a".into())));
    assert_eq!(channels.ended("a"), [1, 2]);
    assert!(
        !channels.is_subscribed("a")
            && channels.ended("a").is_empty()
            && channels.confirmed("a", |_| ()).is_empty()
    );
}

#[test]
fn after_a_gap_all_are_asked_for_again() {
    let (channels, now) = (Channels::default(), Moment::now());
    channels.request("a", 1, now);
    channels.take_requested();
    channels.confirmed("a", |_| ());
    channels.went_down();
    assert!(!channels.is_subscribed("a"));
    assert_eq!(channels.take_requested(), boxed(&["a"]));
}

#[test]
fn what_nobody_needs_is_given_up_after_a_while_and_may_be_wanted_again() {
    let (channels, now) = (Channels::default(), Moment::now());
    for (stem, owner) in [("used", 1), ("unused", 2)] {
        channels.request(stem, owner, now);
    }
    channels.take_requested();
    assert_eq!(channels.confirmed("unused", |_| ()), [2]);
    assert!(channels.take_idle(now.after(IDLE / 2), |_| false).is_empty());
    let later = now.after(IDLE * 2);
    assert_eq!(channels.take_idle(later, |owner| owner == 1), boxed(&["unused"]));
    assert!(channels.take_idle(later.after(IDLE / 2), |_| false).is_empty(), "it was needed a moment ago");
    // It is wanted again before the end of the former subscription is confirmed.
    channels.request("unused", 2, later);
    channels.take_requested();
    assert!(channels.ended("unused").is_empty());
    assert_eq!(channels.confirmed("unused", |_| ()), [2]);
    assert!(channels.is_subscribed("unused"));
}

#[test]
fn it_is_kept_for_an_entry_that_wanted_it_when_it_was_heard_already() {
    let (channels, now) = (Channels::default(), Moment::now());
    assert!(channels.request("a", 1, now));
    channels.take_requested();
    assert_eq!(channels.confirmed("a", |_| ()), [1]);
    assert!(!channels.request("a", 2, now), "the listener has nothing to do");
    assert!(channels.take_idle(now.after(IDLE * 2), |owner| owner == 2).is_empty());
    assert_eq!(channels.ended("a"), [2]);
}

#[test]
fn what_is_denied_is_asked_for_again_after_a_while() {
    let (channels, now) = (Channels::default(), Moment::now());
    channels.request("a", 1, now);
    channels.take_requested();
    assert!(channels.denial("a").is_none());
    let why = Failure::Never(Error::new(ErrorKind::Unavailable, ""));
    assert_eq!(channels.denied("a", why), [1]);
    assert!(!channels.is_subscribed("a") && channels.denial("a").is_some_and(|why| why.is_final()));
    assert!(!channels.request("a", 1, now) && channels.take_requested().is_empty());
    assert!(channels.request("a", 1, Moment::now().after(DENIED * 2)) && channels.denial("a").is_none());
    // The server has no subscription that would have to be given up.
    channels.take_requested();
    channels.denied("a", Failure::Never(Error::new(ErrorKind::Unavailable, "")));
    assert!(channels.take_idle(now.after(IDLE * 2), |_| false).is_empty() && channels.denial("a").is_none());
}

/// So that a lock which is kept because its channel is subscribed has missed nothing.
#[test]
fn each_entry_is_told_before_the_channel_counts_as_subscribed() {
    let (channels, now) = (Channels::default(), Moment::now());
    channels.request("a", 1, now);
    channels.take_requested();
    let told = RefCell::new(Vec::new());
    let owners = channels.confirmed("a", |new| {
        assert!(!channels.is_subscribed("a"), "{new:?}");
        told.borrow_mut().extend_from_slice(new);
        // Another thread's, at this very moment.
        channels.request("a", 2, now);
    });
    assert_eq!((&owners, &told.into_inner(), channels.is_subscribed("a")), (&vec![1, 2], &vec![1, 2], true));
}
