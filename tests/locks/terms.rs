//! What a hold can be told for its end: how long it is kept at least, and renewed at most.

mod at_least;
mod deciding;
mod max_hold;
mod nested;
mod warning;
