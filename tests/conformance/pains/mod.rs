//! What users of other lock libraries complained of, each as a test that it does not happen here,
//! as far as no other test of this crate shows it already.

mod errors;
#[path = "../../../benches/contention/memory.rs"]
mod memory;
mod misuse;
mod names;
mod queue;
mod reading;
mod renewal;
mod sight;
mod telling;
mod waking;

use std::time::Duration;

/// What a loaded machine may add to any bound.
const LOAD: Duration = crate::support::ms(4000);
