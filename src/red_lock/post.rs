//! One exchange with all servers: all commands are written before any reply is waited for.

use std::slice;
use std::sync::Arc;

use super::node::Node;
use crate::clock::Moment;
use crate::engine::redis::exchange::{Command, Reply};
use crate::engine::redis::failure::Failure;

/// Asks a server for each item: first those for which there is a connection by `began`; then, by `deadline`, the
/// others, whose connections are being opened in the meantime. A server that does not reply is left out from now
/// on.
pub(super) fn ask_all<T>(
    asked: Vec<(T, &Arc<Node>, Command<'_>)>,
    began: Moment,
    deadline: Moment,
) -> Vec<(T, Result<Reply, Failure>)> {
    let post = |(_, node, command): &(T, &Arc<Node>, Command<'_>), limit| {
        node.server.backend.post(slice::from_ref(command), limit)
    };
    let posted: Vec<_> = asked.iter().map(|one| post(one, began)).collect();
    let posted: Vec<_> =
        asked.iter().zip(posted).map(|(one, posted)| posted.or_else(|_| post(one, deadline))).collect();
    let read = |((item, node, command), posted): ((T, &Arc<Node>, Command<'_>), Result<_, _>)| {
        let awaited = Moment::now();
        let backend = &node.server.backend;
        let reply = posted.and_then(|posted| backend.read(posted, slice::from_ref(&command), deadline));
        node.heard(&reply, began, awaited);
        (item, reply)
    };
    asked.into_iter().zip(posted).map(read).collect()
}
