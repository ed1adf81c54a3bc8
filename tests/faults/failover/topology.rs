//! Servers of which one takes the place of another, and what makes them do so.

use std::thread;

use redis_concurrent_testkit::{SentinelFleet, wait_until};

use crate::support::{LONG, Random, ms};

/// Why another server becomes the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// SIGKILL; it comes back, empty, as a replica.
    Kill,
    /// SIGSTOP, and SIGCONT some time after another has taken its place.
    Freeze,
    /// On command, while it lives.
    Command,
    /// Nobody reaches it, until another has taken its place.
    Partition,
}

pub trait Topology: Sync {
    /// What its clients connect to.
    fn url(&self) -> String;
    /// What can happen to it.
    fn strikes(&self) -> Vec<Strike>;
    /// Lets it happen; returns when another server is the primary.
    fn strike(&self, strike: Strike);
    /// Undoes it; returns when all servers are in step again.
    fn mend(&self, strike: Strike, random: &mut Random);
}

/// The one of this name.
pub fn named(kind: &str) -> Box<dyn Topology> {
    match kind {
        "sentinel" => Box::new(Sentinels(SentinelFleet::builder().behind_proxies().start().unwrap())),
        other => panic!("KIND={other}: there is only sentinel"),
    }
}

struct Sentinels(SentinelFleet);

impl Sentinels {
    fn former(&self) -> usize {
        self.0.primary().expect("the sentinels name a primary")
    }
}

impl Topology for Sentinels {
    fn url(&self) -> String {
        self.0.url()
    }

    fn strikes(&self) -> Vec<Strike> {
        vec![Strike::Kill, Strike::Freeze, Strike::Command, Strike::Partition]
    }

    fn strike(&self, strike: Strike) {
        let former = self.former();
        match strike {
            Strike::Kill => self.0.servers()[former].kill().unwrap(),
            Strike::Freeze => self.0.servers()[former].stop().unwrap(),
            Strike::Command => self.0.failover(),
            Strike::Partition => self.0.proxy(former).black_hole(true),
        }
        self.0.primary_after(former);
    }

    fn mend(&self, strike: Strike, random: &mut Random) {
        thread::sleep(random.micros(1_500_000));
        for (i, server) in self.0.servers().iter().enumerate() {
            match strike {
                Strike::Kill if server.pid().is_none() => server.restart().unwrap(),
                // It has no effect on those that run.
                Strike::Freeze => server.cont().unwrap(),
                Strike::Partition => self.0.proxy(i).heal().unwrap(),
                _ => {}
            }
        }
        wait_until(3 * LONG, "all servers are in step", || {
            thread::sleep(ms(100));
            self.0.is_whole()
        });
    }
}
