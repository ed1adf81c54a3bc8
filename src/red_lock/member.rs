//! A part of a hold: the grant of one server.

use std::sync::Arc;
use std::time::Duration;

use super::node::Node;
use crate::engine::call::held;
use crate::engine::entries::entry::LockEntry;
use crate::engine::state::lock_state::Ticket;

/// The grant of one server: an ordinary hold there, renewed like any other.
#[derive(Clone)]
pub(super) struct Member {
    /// The index of the server.
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
