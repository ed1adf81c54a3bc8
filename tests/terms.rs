//! What a hold can be told for its end: how long it is kept at least, and renewed at most.

#[path = "invariants/support.rs"]
mod support;

#[path = "terms/at_least.rs"]
mod at_least;
#[path = "terms/max_hold.rs"]
mod max_hold;
#[path = "terms/nested.rs"]
mod nested;
