//! Conditions: every form of a wait, what it gives up and gets back, who is signalled when, and bad days.

#[path = "support/one_lock.rs"]
mod one_lock;
#[path = "invariants/support.rs"]
mod support;

#[path = "condition/faults.rs"]
mod faults;
#[path = "condition/forms.rs"]
mod forms;
#[path = "condition/order.rs"]
mod order;
#[path = "condition/signals.rs"]
mod signals;
#[path = "condition/stage.rs"]
mod stage;
