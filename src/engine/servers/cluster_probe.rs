//! The check of a cluster's nodes, as the user configured them, when a client connects.

use crate::engine::redis::probe::{Unprobed, probe_node};
use crate::engine::redis::slots::{Node, Range};
use crate::engine::servers::cluster::Cluster;
use crate::error::{Error, ErrorKind};

impl Cluster {
    /// Asks every server for its map, and adopts the first one. At least one server must be reachable, and
    /// all that are must be part of the same cluster.
    ///
    /// # Errors
    /// `InvalidInput` for a server that is not part of a cluster, or is part of another than the first. If
    /// none could be asked, the error of the last one.
    pub(crate) fn probe(&self, channel: &str) -> Result<(), Unprobed> {
        let mut map: Option<(Node, Vec<Range>)> = None;
        let mut failed = None;
        for server in self.servers() {
            let Some(node) = &server.node else { continue };
            match (probe_node(&server.manager, channel, node), &map) {
                (Ok((_, ranges)), Some((first, known))) if !share_nodes(known, &ranges) => {
                    let why = format!("the nodes at {first} and {node} are of different Redis Clusters");
                    return Err(Unprobed::Unfit(Error::new(ErrorKind::InvalidInput, "").because(why)));
                }
                (Ok(_), Some(_)) => {}
                (Ok((_, ranges)), None) => map = Some((node.clone(), ranges)),
                (Err(Unprobed::Unfit(e)), _) if e.kind() == ErrorKind::InvalidInput => {
                    return Err(Unprobed::Unfit(e));
                }
                (Err(e), _) => {
                    tracing::warn!(%node, "a node of the cluster could not be asked");
                    failed = Some(e);
                }
            }
        }
        match (map, failed) {
            (Some((_, map)), _) => self.learned(&map),
            (None, Some(e)) => return Err(e),
            (None, None) => {}
        }
        Ok(())
    }
}

/// Returns whether two maps are of the same cluster: they share a node. They need not be equal, as nodes
/// learn of changes at different times.
fn share_nodes(one: &[Range], other: &[Range]) -> bool {
    let ids = |map: &[Range]| map.iter().flat_map(|range| range.ids.clone()).collect::<Vec<_>>();
    let known = ids(one);
    ids(other).iter().any(|id| known.contains(id))
}
