//! Servers of which one takes the place of another, and what makes them do so.

mod cluster;
mod sentinels;

use std::time::Duration;

use redis::cmd;
use redis_concurrent_testkit::RedisServer;

use crate::support::{Random, ms};
use cluster::Cluster;
use sentinels::Sentinels;

/// Why another server becomes the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// SIGKILL; it comes back, empty, as a replica.
    Kill,
    /// The same, when its replicas have not been told anything for a moment.
    Behind,
    /// SIGSTOP, and SIGCONT some time after another has taken its place.
    Freeze,
    /// On command, while it lives.
    Command,
    /// Nobody reaches it, until another has taken its place.
    Partition,
    /// Clients reach it, its replicas and the sentinels do not, until another has taken its place.
    Isolate,
    /// The same, and those of the first process reach it only, for a while after another has taken its place: they are
    /// cut off together with it.
    Minority,
    /// The same, for longer than a lease; and a primary without replicas refuses writes.
    Refused,
    /// Each server is shut down and started again, the primary when a replica has taken its place.
    Roll,
    /// The slot of one of the locks goes to another primary; halfway there it stands still for a moment.
    Move,
    /// A node is added and gets the slots of all locks; then it is removed, and they go to another one.
    Resize,
}

impl Strike {
    pub fn is_called(self, name: &str) -> bool {
        format!("{self:?}").eq_ignore_ascii_case(name)
    }

    /// Whether clients of two primaries may hold by turns.
    pub fn parts_clients(self) -> bool {
        matches!(self, Strike::Minority | Strike::Refused)
    }
}

pub trait Topology: Sync {
    /// What clients connect to.
    fn url(&self) -> String;
    /// What those of this process do.
    fn url_of(&self, _process: u64) -> String {
        self.url()
    }
    /// What can happen to it.
    fn strikes(&self) -> Vec<Strike>;
    /// How often it happens in a row.
    fn times(&self, _: Strike) -> usize {
        1
    }
    /// Does what precedes it, and concerns no client.
    fn prepare(&self, _: Strike) {}
    /// Lets it happen; returns when another server is the primary.
    fn strike(&self, strike: Strike);
    /// Undoes it; returns when all servers are in step again.
    fn mend(&self, strike: Strike, random: &mut Random);
}

/// The process whose clients may be cut off.
const FIRST: u64 = 1;

/// How long clients go on at a primary that another has replaced.
const LINGERS: Duration = ms(2000);

/// For how long replicas are behind: shorter than it takes until a server is believed to be down.
const LAG: Duration = Duration::from_millis(500);

/// The one of this name, in which `only` this kind of failover may be wanted.
pub fn named(kind: &str, only: Option<&str>) -> Box<dyn Topology> {
    match kind {
        "sentinel" => Box::new(Sentinels::start()),
        "cluster" => Box::new(Cluster::start(only.is_some_and(|it| Strike::Minority.is_called(it)))),
        other => panic!("KIND={other}: there are sentinel and cluster"),
    }
}

/// What it says of replication; nothing if it does not answer.
fn info(server: &RedisServer) -> String {
    let info = server.connection().and_then(|mut it| cmd("INFO").arg("replication").query(&mut it));
    info.unwrap_or_default()
}

fn is_primary(server: &RedisServer) -> bool {
    info(server).contains("role:master")
}
