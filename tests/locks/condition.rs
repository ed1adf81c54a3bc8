//! Conditions: every form of a wait, what it gives up and gets back, which waiter is signalled when, and bad days.

mod faults;
mod fixture;
mod forms;
mod order;
mod signals;
