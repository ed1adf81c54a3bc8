//! The state machine of one lock in one client. Its decisions follow from the events reported to it alone.

pub(crate) mod asking;
pub(crate) mod grant;
pub(crate) mod lock_state;
pub(crate) mod table;
