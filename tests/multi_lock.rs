//! Several locks as one: how they come in, in whatever order they are named, and how they end.

#[path = "invariants/support.rs"]
mod support;

// A part of what it can do is for other tests.
#[allow(dead_code)]
#[path = "replicas/flock.rs"]
mod flock;

#[path = "multi_lock/chance.rs"]
mod chance;
#[path = "multi_lock/deadlock.rs"]
mod deadlock;
#[path = "multi_lock/forms.rs"]
mod forms;
#[path = "multi_lock/losing.rs"]
mod losing;
#[path = "multi_lock/refusing.rs"]
mod refusing;
#[path = "multi_lock/replicated.rs"]
mod replicated;
#[path = "multi_lock/requests.rs"]
mod requests;
#[path = "multi_lock/silence.rs"]
mod silence;
#[path = "multi_lock/stage.rs"]
mod stage;
#[path = "multi_lock/waiting.rs"]
mod waiting;
