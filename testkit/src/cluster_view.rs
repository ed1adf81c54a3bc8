//! What the nodes of a private Redis Cluster report about themselves.

use redis::{Connection, RedisResult, cmd};

/// A node, as `CLUSTER NODES` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub(super) id: String,
    /// Whether this line describes the node that was asked.
    is_own: bool,
    pub(super) is_primary: bool,
    /// The id of the primary, if the node is a replica.
    pub(super) replicates: Option<String>,
    /// Of two claims to a slot, the one with the higher epoch counts.
    pub(super) epoch: u64,
    /// The ranges of slots that the node owns, each with its first and last slot.
    slots: Vec<(u16, u16)>,
}

impl View {
    /// Returns what the node at the other end of the connection reports about itself.
    pub(super) fn own(connection: &mut Connection) -> RedisResult<View> {
        let own = View::find(connection, |view| view.is_own)?;
        own.ok_or_else(|| (redis::ErrorKind::Parse, "CLUSTER NODES has no line of its own").into())
    }

    /// Returns what the node at the other end of the connection knows about the node `id`, if anything.
    pub(super) fn of(connection: &mut Connection, id: &str) -> RedisResult<Option<View>> {
        View::find(connection, |view| view.id == id)
    }

    fn find(connection: &mut Connection, is_it: impl Fn(&View) -> bool) -> RedisResult<Option<View>> {
        let nodes: String = cmd("CLUSTER").arg("NODES").query(connection)?;
        Ok(nodes.lines().filter_map(View::read).find(is_it))
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u16> + '_ {
        self.slots.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Whether this describes the node `itself`, with its role and slots: a node that knows of no slots but
    /// its own takes itself for the majority of the primaries.
    fn is_known_as(&self, itself: &View) -> bool {
        self.id == itself.id
            && self.is_primary == itself.is_primary
            && self.replicates == itself.replicates
            && self.slots == itself.slots
    }

    /// Parses `<id> <address> <flags> <primary> <ping> <pong> <epoch> <link> <slot> …`; slots in brackets are
    /// being moved.
    fn read(line: &str) -> Option<View> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, _, flags, replicates, _, _, epoch, _, slots @ ..] = &words[..] else { return None };
        let range = |text: &&str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        let is = |flag| flags.split(',').any(|it| it == flag);
        Some(View {
            id: (*id).to_owned(),
            is_own: is("myself"),
            is_primary: is("master"),
            replicates: (*replicates != "-").then(|| (*replicates).to_owned()),
            epoch: epoch.parse().ok()?,
            slots: slots.iter().filter(|text| !text.starts_with('[')).filter_map(range).collect(),
        })
    }
}

/// Whether this node serves requests, knows exactly `nodes` nodes and none of them as failing, sees these
/// nodes as they see themselves, and has its primary's data.
pub(super) fn is_ready<'a>(
    connection: &mut Connection,
    nodes: usize,
    mut themselves: impl Iterator<Item = &'a View>,
) -> RedisResult<bool> {
    let info: String = cmd("CLUSTER").arg("INFO").query(connection)?;
    let all: String = cmd("CLUSTER").arg("NODES").query(connection)?;
    let replication: String = cmd("INFO").arg("replication").query(connection)?;
    let has = |text: &str, line: &str| text.lines().any(|it| it.trim() == line);
    let apart = ["fail", "handshake", "noaddr"];
    let known: Vec<View> = all.lines().filter_map(View::read).collect();
    Ok(has(&info, "cluster_state:ok")
        && has(&info, &format!("cluster_known_nodes:{nodes}"))
        && !all.lines().any(|line| {
            let mut words = line.split(' ').skip(2);
            let flags = words.next().unwrap_or_default();
            let unconnected = words.nth(4) == Some("disconnected") && !flags.contains("myself");
            unconnected || flags.split(',').any(|flag| apart.contains(&flag.trim_end_matches('?')))
        })
        && themselves.all(|one| known.iter().any(|it| it.is_known_as(one)))
        && (has(&replication, "role:master") || has(&replication, "master_link_status:up")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let line =
            "07c3 127.0.0.1:30004@31004,host myself,master - 0 1426238317239 4 connected 0-5 9 [93-<-292f]";
        let view = View::read(line).unwrap();
        assert!(view.is_own && view.is_primary && view.replicates.is_none());
        assert_eq!((&*view.id, view.epoch), ("07c3", 4));
        assert_eq!(view.slots().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 9]);
        assert!(view.has(9) && !view.has(93));
        let replica = View::read("07c3 127.0.0.1:30004@31004 slave 292f 0 0 4 connected").unwrap();
        assert!(!replica.is_own && !replica.is_primary);
        assert_eq!(replica.replicates.as_deref(), Some("292f"));
        let elsewhere = View { is_own: false, epoch: 3, ..view.clone() };
        assert!(elsewhere.is_known_as(&view) && !replica.is_known_as(&view));
        assert!(!View { slots: Vec::new(), ..elsewhere }.is_known_as(&view));
    }
}
