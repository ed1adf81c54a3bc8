//! Unit tests of `src/error.rs`.

use std::collections::HashSet;

use super::*;

const ALL: [ErrorKind; 18] = [
    ErrorKind::Cancelled,
    ErrorKind::LeaseLost,
    ErrorKind::NotOwner,
    ErrorKind::WouldDeadlock,
    ErrorKind::Deadlock,
    ErrorKind::QueueFull,
    ErrorKind::WrongType,
    ErrorKind::Refused,
    ErrorKind::Broken,
    ErrorKind::Conflict,
    ErrorKind::NotReplicated,
    ErrorKind::Unavailable,
    ErrorKind::OutcomeUnknown,
    ErrorKind::Forked,
    ErrorKind::Closed,
    ErrorKind::InvalidInput,
    ErrorKind::Protocol,
    ErrorKind::Timeout,
];

#[test]
fn a_predicate_is_true_of_its_kind_alone() {
    for kind in ALL {
        let e = Error::new(kind, "it");
        let are = [e.is_cancelled(), e.is_lease_lost(), e.is_unavailable(), e.is_outcome_unknown()];
        let of =
            [ErrorKind::Cancelled, ErrorKind::LeaseLost, ErrorKind::Unavailable, ErrorKind::OutcomeUnknown];
        assert_eq!(are, of.map(|it| it == kind), "{kind:?}");
    }
}

/// An error without details is one word for several problems.
#[test]
fn pain_27_no_two_errors_read_alike() {
    let texts: HashSet<_> = ALL.into_iter().map(|kind| Error::new(kind, "x").to_string()).collect();
    assert_eq!(texts.len(), ALL.len(), "{texts:?}");
}

#[test]
fn the_sources_are_printed_by_the_alternate_form_alone() {
    let io = std::io::Error::other("reset");
    let redis = redis::RedisError::from(io);
    assert!(redis.source().is_some(), "it has a source, which it prints");
    let below = Error::new(ErrorKind::Unavailable, "").because("no answer").caused_by(redis);
    let above = Error::new(ErrorKind::OutcomeUnknown, "a").because("given back").caused_by(below);
    assert_eq!(above.to_string(), "\"a\": outcome unknown: given back");
    let chain = "\"a\": outcome unknown: given back: unavailable: no answer: reset";
    assert_eq!(format!("{above:#}"), chain);
    assert_eq!(format!("{above:?}"), format!("Error(OutcomeUnknown, {chain})"));
    let below = above.source().unwrap();
    assert_eq!(below.to_string(), "unavailable: no answer");
    assert!(below.source().unwrap().source().is_none(), "it printed its own source");
    assert!(below.downcast_ref::<Error>().unwrap().of_redis().is_some());
}

/// What a terminal would obey, or show in another order, may come from whoever writes to Redis.
#[test]
fn what_others_wrote_is_printed_escaped() {
    let hostile = "a\u{1b}[2Jb\u{9b}c\u{202e}d\ne";
    let io = std::io::Error::other(hostile);
    let error = Error::new(ErrorKind::Unavailable, hostile).because(hostile).caused_by(io);
    let process =
        crate::admin::Process { pid: 1, host: hostile.into(), client_name: hostile.into(), thread: None };
    let holder = crate::admin::Holder {
        owner: hostile.into(),
        process: Some(process),
        since: None,
        remaining: None,
        permits: None,
        stays: false,
        token: None,
    };
    let foreign = crate::admin::Holder { process: None, ..holder.clone() };
    for text in
        [format!("{error}"), format!("{error:#}"), format!("{error:?}"), format!("{holder} {foreign}")]
    {
        assert!(text.contains(r"b\u{9b}c\u{202e}d"), "{text}");
        assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
    }
}
