//! A primary and two replicas, as three sentinels see them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use redis_concurrent_testkit::{SentinelFleet, wait_until};

use super::{LAG, Strike, Topology};
use crate::support::{LONG, Random, ms};

pub struct Sentinels {
    fleet: SentinelFleet,
    /// Which server was struck last.
    struck: AtomicUsize,
}

impl Sentinels {
    pub fn start() -> Self {
        let fleet = SentinelFleet::builder().behind_proxies().start().unwrap();
        Sentinels { fleet, struck: AtomicUsize::new(0) }
    }

    fn primary(&self) -> usize {
        self.fleet.primary().expect("the sentinels name a primary")
    }

    fn wait_until_whole(&self) {
        wait_until(3 * LONG, "all servers are in step", || {
            thread::sleep(ms(100));
            self.fleet.is_whole()
        });
    }

    fn restart(&self, replica: usize) {
        self.fleet.restart_replica(replica).unwrap();
        self.wait_until_whole();
    }
}

impl Topology for Sentinels {
    fn url(&self) -> String {
        self.fleet.url()
    }

    fn strikes(&self) -> Vec<Strike> {
        use Strike::{Behind, Command, Freeze, Isolate, Kill, Partition, Roll};
        vec![Kill, Behind, Freeze, Command, Partition, Isolate, Roll]
    }

    fn prepare(&self, strike: Strike) {
        let primary = self.primary();
        if strike == Strike::Roll {
            (0..self.fleet.servers().len()).filter(|it| *it != primary).for_each(|it| self.restart(it));
        }
    }

    fn strike(&self, strike: Strike) {
        let former = self.primary();
        self.struck.store(former, Ordering::Relaxed);
        match strike {
            Strike::Kill => self.fleet.servers()[former].kill().unwrap(),
            Strike::Behind => {
                self.fleet.isolate(former);
                thread::sleep(LAG);
                self.fleet.servers()[former].kill().unwrap();
            }
            Strike::Freeze => self.fleet.servers()[former].stop().unwrap(),
            Strike::Command | Strike::Roll => self.fleet.failover(),
            Strike::Partition => self.fleet.proxy(former).black_hole(true),
            Strike::Isolate => self.fleet.isolate(former),
            Strike::Move | Strike::Resize => unreachable!("there are no slots"),
        }
        self.fleet.primary_after(former);
    }

    fn mend(&self, strike: Strike, random: &mut Random) {
        thread::sleep(random.micros(1_500_000));
        let struck = self.struck.load(Ordering::Relaxed);
        match strike {
            Strike::Kill => self.fleet.servers()[struck].restart().unwrap(),
            Strike::Behind => {
                self.fleet.proxy(struck).heal().unwrap();
                self.fleet.servers()[struck].restart().unwrap();
            }
            Strike::Freeze => self.fleet.servers()[struck].cont().unwrap(),
            Strike::Partition | Strike::Isolate => self.fleet.proxy(struck).heal().unwrap(),
            Strike::Command | Strike::Roll | Strike::Move | Strike::Resize => {}
        }
        self.wait_until_whole();
        if strike == Strike::Roll {
            self.restart(struck);
        }
    }
}
