//! A part of a hold: what one server granted.

use std::sync::Arc;
use std::time::Duration;

use super::node::Node;
use crate::engine::entry::LockEntry;
use crate::engine::held;
use crate::engine::state::lock_state::Ticket;

/// What one server granted: an ordinary hold there, renewed by the ordinary thread.
#[derive(Clone)]
pub(super) struct Member {
    /// The server it is on.
    pub(super) at: usize,
    pub(super) node: Arc<Node>,
    pub(super) entry: Arc<LockEntry>,
    pub(super) ticket: Ticket,
}

impl Member {
    pub(super) fn remaining(&self) -> Duration {
        held::remaining(&self.entry, self.ticket)
    }
}
