//! Unit tests of `src/error.rs`.

use std::collections::HashSet;

use super::*;

const ALL: [ErrorKind; 16] = [
    ErrorKind::Cancelled,
    ErrorKind::LeaseLost,
    ErrorKind::NotOwner,
    ErrorKind::WouldDeadlock,
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
fn each_kind_has_a_predicate_of_its_own() {
    for (i, kind) in ALL.into_iter().enumerate() {
        let e = Error::new(kind, "it");
        let are = [
            e.is_cancelled(),
            e.is_lease_lost(),
            e.is_not_owner(),
            e.is_would_deadlock(),
            e.is_wrong_type(),
            e.is_refused(),
            e.is_broken(),
            e.is_conflict(),
            e.is_not_replicated(),
            e.is_unavailable(),
            e.is_outcome_unknown(),
            e.is_forked(),
            e.is_closed(),
            e.is_invalid_input(),
            e.is_protocol(),
            e.is_timeout(),
        ];
        assert!(are.into_iter().enumerate().all(|(j, is)| is == (i == j)), "{kind:?}: {are:?}");
    }
}

/// An error without details is one word for several problems.
#[test]
fn pain_27_no_two_errors_read_alike() {
    let texts: HashSet<_> = ALL.into_iter().map(|kind| Error::new(kind, "x").to_string()).collect();
    assert_eq!(texts.len(), ALL.len(), "{texts:?}");
}

#[test]
fn the_sources_are_printed_by_the_alternate_form_alone_and_once_each() {
    let io = std::io::Error::other("reset");
    let redis = redis::RedisError::from(io);
    assert_eq!(redis.source().unwrap().to_string(), redis.to_string(), "it prints its own source");
    let below = Error::new(ErrorKind::Unavailable, "").because("no answer").caused_by(redis);
    let above = Error::new(ErrorKind::OutcomeUnknown, "a").because("given back").caused_by(below);
    assert_eq!(above.to_string(), "\"a\": outcome unknown: given back");
    let chain = "\"a\": outcome unknown: given back: unavailable: no answer: reset";
    assert_eq!(format!("{above:#}"), chain);
    assert_eq!(format!("{above:?}"), format!("Error(OutcomeUnknown, {chain})"));
    let below = above.source().unwrap();
    assert_eq!(below.to_string(), "unavailable: no answer");
    let redis = below.source().unwrap();
    assert_eq!(redis.to_string(), "reset");
    assert!(redis.source().is_none(), "it printed its own source");
    assert!(below.downcast_ref::<Error>().unwrap().cause::<redis::RedisError>().is_some());
}

#[derive(Debug)]
struct Middle(std::fmt::Error);

impl std::fmt::Display for Middle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "middle")
    }
}

impl StdError for Middle {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn what_is_behind_a_source_that_was_printed_stays_in_the_chain() {
    let middle = || std::io::Error::other(Middle(std::fmt::Error));
    let texts = |error: &Error| -> Vec<String> {
        let chain = std::iter::successors(error.source(), |it| (*it).source());
        chain.map(ToString::to_string).collect()
    };
    let last = std::fmt::Error.to_string();
    // It prints its source, which does not print its own source.
    let printing = Error::new(ErrorKind::Protocol, "").caused_by(redis::RedisError::from(middle()));
    assert_eq!(texts(&printing), ["middle", &last]);
    let plain = Error::new(ErrorKind::Protocol, "").caused_by(Middle(std::fmt::Error));
    assert_eq!(texts(&plain), ["middle", &last]);
}
