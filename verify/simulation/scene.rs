//! The processes of a run: each has a client and some threads, which take locks of several kinds, hold them for a
//! while, and release them.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use super::checks;
use super::faults::{Plan, Weather};
use super::net::{Ends, Net, host};
use super::part::{KINDS, Part, Playing, SERVERS};
use super::recipes;
use crate::client::Client;
use crate::engine::call::backoff::Rng;
use crate::engine::entries::runtime::Shared;
use crate::engine::redis::backend::Backend;
use crate::engine::redis::connection::{ConnectionManager, Destination};
use crate::engine::redis::credentials::Credentials;
use crate::engine::redis::pool::{Pools, THREADS};
use crate::engine::redis::wire::memory;
use crate::engine::renewal::renewer::Renewer;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;
use crate::observe::Observers;
use crate::red_lock::RedLockClient;
use crate::settings::Config;
use crate::sync::{thread, time};

/// How long a run may take, in simulated time.
const LONGEST: Duration = Duration::from_secs(3_600);
/// The keys of what has holders, while it has any.
const LOCKS: &[&str] = &[
    "rc:{reentrant}",
    "rc:{simple}",
    "rc:{left}",
    "rc:{right}",
    "rc:{exchange}",
    "rc:{files}",
    "rc:{election}",
];
/// After so long, nothing of a lock is left.
const LEFT: Duration = Duration::from_secs(180);

/// What a run is like.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) seed: u64,
    pub(super) weather: Weather,
    pub(super) plan: Plan,
    processes: usize,
    servers: usize,
    threads: usize,
    rounds: usize,
    /// How long its threads pause at most, in ms.
    pace: usize,
    lease: Duration,
    local_handoff: Duration,
    /// What its threads take part in: the fewer kinds, the more they meet.
    kinds: Vec<&'static str>,
}

impl Scene {
    pub(super) fn of(seed: u64, without: &[usize]) -> Scene {
        use Weather::{Calm, Deadly, Lossy, Rough};
        let mut rng = Rng(seed);
        let weather = [Calm, Deadly, Rough, Rough, Lossy][rng.below(5)];
        let processes = 1 + rng.below(3);
        // A lock of several servers has a scene of its own.
        let servers = if rng.below(10) == 0 { SERVERS } else { 1 };
        let mut kinds = || KINDS[rng.below(KINDS.len())];
        let kinds = if servers > 1 { vec!["RedLock"] } else { [kinds(), kinds(), kinds(), kinds()].to_vec() };
        // The pace, and within what time the faults begin, in ms.
        let (pace, within) = [(4_000, 60_000), (4_000, 60_000), (300, 15_000), (20, 3_000)][rng.below(4)];
        Scene {
            seed,
            pace,
            weather,
            processes,
            servers,
            kinds: kinds[..1 + rng.below(kinds.len())].to_vec(),
            threads: 1 + rng.below(3),
            rounds: (2 + rng.below(5)) * if pace < 4_000 { 6 } else { 1 },
            lease: Duration::from_secs([3, 10, 30][rng.below(3)]),
            local_handoff: Duration::from_millis([0, 1, 20][rng.below(3)]),
            plan: Plan::new(&mut rng, weather, (processes, servers), within, without),
        }
    }

    /// The client of a process for a server.
    fn client(&self, ends: Ends) -> Client {
        let mut config = Config { lease: self.lease, local_handoff: self.local_handoff, ..Config::default() };
        config.renew_every = self.lease / 3;
        let server = redis::Client::open(format!("redis://{}", host(ends))).expect("a URL");
        let destination = Destination::At(Box::new(server));
        let manager = ConnectionManager::new(destination, Credentials::default(), &config);
        let pools = Pools::new(&config, THREADS).expect("no threads");
        let backend = Backend::new(pools.pool(manager.clone()).expect("no threads"), pools.threads);
        let route = Route::One(Server::new(manager, backend, None));
        Client(Shared::new(config, route, Arc::new(Renewer::new()), Observers::default()))
    }

    /// Plays it, as the first thread of an execution.
    pub(super) fn play(&self) {
        time::begin();
        checks::begin();
        recipes::begin();
        let net = Arc::new(Net::new(self.seed, self.servers, self.plan.clone()));
        memory::lead_over(net.clone());
        time::pass_when_quiet(LONGEST);
        let carries = net.clone();
        start("network", move || carries.carry());
        let its = |process| (0..self.servers).map(move |server| self.client((process, server))).collect();
        let clients: Vec<Vec<Client>> = (0..self.processes).map(its).collect();
        let playing = Arc::new(Playing::new(self.processes, self.threads));
        self.start(&clients, &playing);
        playing.wait(&self.plan);
        net.ends();
        self.finish(&clients, &net);
        // Those of dead processes end, too.
        checks::over();
        net.is_over();
        time::go_on();
        drop(clients);
        time::wait_for_others();
    }

    /// Starts the threads of all processes.
    fn start(&self, clients: &[Vec<Client>], playing: &Arc<Playing>) {
        let items = Arc::new(AtomicI64::new(0));
        for (process, its) in clients.iter().enumerate() {
            time::belongs_to(process + 1);
            let red = (self.servers > 1).then(|| RedLockClient::new(its).expect("servers that differ"));
            for thread in 0..self.threads {
                let other = (process + 1) % self.processes;
                let part = Part {
                    client: its[0].clone(),
                    other: (other, clients[other][0].clone()),
                    process,
                    weather: self.weather,
                    pace: self.pace,
                    rng: Rng(self.seed ^ ((process * 8 + thread + 1) as u64) << 32),
                    items: items.clone(),
                    red: red.clone(),
                    playing: playing.clone(),
                };
                let (kinds, rounds) = (self.kinds.clone(), self.rounds);
                start(&format!("thread-{process}-{thread}"), move || part.play(&kinds, rounds));
            }
        }
        time::belongs_to(0);
    }

    /// Checks what came of it, and what is left.
    fn finish(&self, clients: &[Vec<Client>], net: &Net) {
        let alive =
            |(process, _): &(usize, _)| self.plan.death(*process).is_none_or(|at| at > time::elapsed());
        let mut all_closed = true;
        for (i, (process, its)) in clients.iter().enumerate().filter(alive).enumerate() {
            time::belongs_to(process + 1);
            if i == 0 {
                recipes::finish(&its[0], self.weather);
            }
            for client in its {
                let closed = client.close();
                assert!(closed.is_ok() || self.weather != Weather::Calm, "{closed:?}");
                all_closed &= closed.is_ok();
            }
        }
        time::belongs_to(0);
        checks::finish(self.weather, &self.plan, &net.lost(), self.lease);
        if all_closed && self.weather != Weather::Lossy && !self.plan.kills() {
            // close-frees: once what is on its way has arrived, nobody holds anything.
            time::sleep(self.plan.settled().saturating_sub(time::elapsed()));
            let held = |(key, _): &(String, bool)| LOCKS.contains(&key.as_str());
            let stays: Vec<_> = net.keys().into_iter().filter(held).collect();
            assert!(stays.is_empty(), "close-frees: all clients are closed: {stays:?}");
        }
        // nothing-left-behind: but what is its users' own, and what is kept for hours.
        let left = || net.keys().into_iter().filter(|(key, _)| !recipes::is_own(key));
        let stays: Vec<_> = left().filter(|(_, expires)| !expires).collect();
        assert!(stays.is_empty(), "nothing-left-behind: these never expire: {stays:?}");
        time::sleep(LEFT);
        let kept = |key: &str| key.ends_with(":fence") || key == "rc:{election}:conditions";
        let stays: Vec<_> = left().filter(|(key, _)| !kept(key)).collect();
        assert!(stays.is_empty(), "nothing-left-behind: {stays:?}");
    }
}

fn start(name: &str, part: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.to_owned()).spawn(part).expect("a thread");
}
