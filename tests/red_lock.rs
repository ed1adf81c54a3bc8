//! A lock over several servers: what it takes to hold it, what becomes of it when servers die, hang or are
//! slow, and what is left behind.

#[path = "red_lock/asking.rs"]
mod asking;
#[path = "red_lock/chaos.rs"]
mod chaos;
#[path = "red_lock/faults.rs"]
mod faults;
#[path = "red_lock/forms.rs"]
mod forms;
#[path = "red_lock/losing.rs"]
mod losing;
#[path = "red_lock/making.rs"]
mod making;
#[path = "red_lock/stage.rs"]
mod stage;
#[path = "invariants/support.rs"]
mod support;
#[path = "red_lock/young.rs"]
mod young;
