//! What users of other lock libraries complained of, each as a test that it does not happen here,
//! as far as no other test of this crate shows it already.

#[path = "invariants/support.rs"]
mod support;

#[path = "pains/errors.rs"]
mod errors;
#[path = "../benches/contention/memory.rs"]
mod memory;
#[path = "pains/misuse.rs"]
mod misuse;
#[path = "pains/names.rs"]
mod names;
#[path = "pains/queue.rs"]
mod queue;
#[path = "pains/reading.rs"]
mod reading;
#[path = "pains/renewal.rs"]
mod renewal;
#[path = "pains/sight.rs"]
mod sight;
#[path = "pains/telling.rs"]
mod telling;
#[path = "pains/waking.rs"]
mod waking;

use std::time::Duration;

/// What a loaded machine may add to any bound.
const LOAD: Duration = support::ms(4000);
