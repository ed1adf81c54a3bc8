//! The servers of a RedLock, checked once: whether there are enough, and all different.

use std::sync::Arc;
use std::time::Duration;

use super::node::Node;
use super::post::to_all;
use crate::client::Client;
use crate::clock::Moment;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::posted::Posted;
use crate::error::{Error, ErrorKind};

/// The smallest number of servers of which one may fail.
const FEWEST: usize = 3;

fn bad(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, "").because(why)
}

/// The clients' servers, if they can be a RedLock's.
pub(super) fn of(clients: &[Client]) -> Result<Arc<[Arc<Node>]>, Error> {
    let n = clients.len();
    if n < FEWEST || n.is_multiple_of(2) {
        let why = if n < FEWEST { "of fewer none may fail" } else { "of one server less as many may fail" };
        return Err(bad(format!(
            "a RedLock has an odd number of servers, {FEWEST} at least, not {n}: {why}"
        )));
    }
    let nodes: Option<Arc<[_]>> = clients.iter().map(|client| Node::new(client).map(Arc::new)).collect();
    let nodes = nodes.ok_or_else(|| bad("a RedLock needs clients of one server each"))?;
    let names = run_ids(&nodes)?;
    for (i, (node, name)) in nodes.iter().zip(&names).enumerate() {
        let same = |other: usize| match (name, &names[other]) {
            (Some(a), Some(b)) => a == b,
            // A server that cannot be asked is known by its address only.
            _ => node.address == nodes[other].address,
        };
        if let Some(other) = (0..i).find(|other| same(*other)) {
            let (one, two) = (&nodes[other].address, &node.address);
            return Err(bad(format!(
                "a RedLock needs a server for each client: clients {other} ({one}) and {i} ({two}) have the same"
            )));
        }
    }
    Ok(nodes)
}

/// The name that each server gives itself, as far as it does. All are asked before one is waited for.
fn run_ids(nodes: &[Arc<Node>]) -> Result<Vec<Option<String>>, Error> {
    for node in nodes {
        node.shared.usable()?;
    }
    let ping = redis::cmd("PING").get_packed_command();
    let began = Moment::now();
    let post = |node: &&Arc<Node>, limit| node.server.backend.post_to_known(&ping, limit, None);
    let longest = |node: &Node| node.shared.config.connect_timeout.max(node.shared.config.command_timeout);
    let limit = began.after(nodes.iter().map(|node| longest(node)).max().unwrap_or(Duration::ZERO));
    let name = |(node, posted): (&Arc<Node>, Result<Posted, Failure>)| {
        let told = posted.map(|posted| posted.told(&node.server.backend, limit, Vec::new));
        let server = match told {
            Ok(told) => told.answer.map(|_| told.server),
            Err(failure) => Err(failure),
        };
        match server {
            Ok(server) => server?.run_id.clone(),
            Err(failure) => {
                node.failed(failure.error());
                None
            }
        }
    };
    Ok(to_all(nodes.iter().collect(), began, limit, post).into_iter().map(name).collect())
}
