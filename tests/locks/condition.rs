//! Conditions: every form of a wait, what it gives up and gets back, who is signalled when, and bad days.

mod faults;
mod forms;
mod order;
mod signals;
mod stage;
