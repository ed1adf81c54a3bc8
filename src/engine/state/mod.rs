//! The state machine of one lock in one client: what it decides follows from what it is told alone.

pub(crate) mod asking;
pub(crate) mod grant;
pub(crate) mod lock_state;
pub(crate) mod table;
