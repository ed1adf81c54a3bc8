//! A primary and two replicas, as three sentinels see them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redis_concurrent_testkit::{Proxy, SentinelFleet, wait_until};

use super::{FIRST, LAG, LINGERS, Strike, Topology};
use crate::failover::run::SETTLES;
use crate::failover::worker::LEASE;
use crate::support::{LONG, Random, ms};

/// After how long a primary refuses writes that no replica has acknowledged.
const MOST_LAG: Duration = ms(1000);

pub struct Sentinels {
    fleet: SentinelFleet,
    /// The way of the first process to each of the sentinels.
    ways: Vec<Proxy>,
    /// Which server was struck last.
    struck: AtomicUsize,
}

impl Sentinels {
    pub fn start() -> Self {
        let fleet = SentinelFleet::builder().behind_proxies().start().unwrap();
        let ways = fleet.sentinels().iter().map(|it| Proxy::start(it.port()).unwrap()).collect();
        Sentinels { fleet, ways, struck: AtomicUsize::new(0) }
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

    /// The former primary and the clients of the first process are among themselves, or with the others again.
    fn part(&self, former: usize, apart: bool) {
        self.ways.iter().for_each(|way| way.black_hole(apart));
        match apart {
            true => self.fleet.isolate(former),
            false => self.fleet.proxy(former).heal().unwrap(),
        }
    }

    /// Has each server refuse writes when it has no replica that keeps up, or take them again.
    fn refuse_alone(&self, on: bool) {
        for server in self.fleet.servers() {
            let mut set = cmd("CONFIG");
            set.arg("SET").arg("min-replicas-max-lag").arg(MOST_LAG.as_secs());
            set.arg("min-replicas-to-write").arg(u8::from(on));
            set.exec(&mut server.connection().unwrap()).unwrap();
        }
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

    fn url_of(&self, process: u64) -> String {
        let (mut url, ports) = (self.url(), self.fleet.sentinels().iter().map(|it| it.port()));
        if process == FIRST {
            for (port, way) in ports.zip(&self.ways) {
                url = url.replace(&format!(":{port}"), &format!(":{}", way.port()));
            }
        }
        url
    }

    fn strikes(&self) -> Vec<Strike> {
        use Strike::{Behind, Command, Freeze, Isolate, Kill, Minority, Partition, Refused, Roll};
        vec![Kill, Behind, Freeze, Command, Partition, Isolate, Minority, Refused, Roll]
    }

    fn prepare(&self, strike: Strike) {
        let primary = self.primary();
        if strike == Strike::Roll {
            (0..self.fleet.servers().len()).filter(|it| *it != primary).for_each(|it| self.restart(it));
        }
        if strike == Strike::Refused {
            self.refuse_alone(true);
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
            Strike::Minority | Strike::Refused => self.part(former, true),
            Strike::Move | Strike::Resize => unreachable!("there are no slots"),
        }
        let parted = Instant::now();
        self.fleet.primary_after(former);
        match strike {
            Strike::Minority => {
                thread::sleep(LINGERS);
                self.part(former, false);
            }
            // It counts the replicas that keep up once a second.
            Strike::Refused => thread::sleep((MOST_LAG + ms(1000) + LEASE).saturating_sub(parted.elapsed())),
            _ => {}
        }
    }

    fn mend(&self, strike: Strike, random: &mut Random) {
        let struck = self.struck.load(Ordering::Relaxed);
        if strike == Strike::Refused {
            // It is to be told by then, although it is still apart.
            thread::sleep(SETTLES);
            self.part(struck, false);
        }
        thread::sleep(random.micros(1_500_000));
        match strike {
            Strike::Kill => self.fleet.servers()[struck].restart().unwrap(),
            Strike::Behind => {
                self.fleet.proxy(struck).heal().unwrap();
                self.fleet.servers()[struck].restart().unwrap();
            }
            Strike::Freeze => self.fleet.servers()[struck].cont().unwrap(),
            Strike::Partition | Strike::Isolate => self.fleet.proxy(struck).heal().unwrap(),
            Strike::Command | Strike::Roll | Strike::Move | Strike::Resize => {}
            Strike::Minority | Strike::Refused => {}
        }
        self.wait_until_whole();
        if strike == Strike::Refused {
            self.refuse_alone(false);
        }
        if strike == Strike::Roll {
            self.restart(struck);
        }
    }
}
