//! The processes of a run: each has a client and some threads, which take locks of several kinds, hold them for a
//! while, and release them.

use std::sync::Arc;
use std::time::Duration;

use redis::IntoConnectionInfo;

use super::checks::{self, Run, always};
use super::cluster::PORT;
use super::faults::{Plan, Weather};
use super::net::{Ends, Net, host};
use super::part::{KINDS, LOCKS, Part, Playing, QUEUES, SERVERS, gets_in};
use super::signals::Role;
use super::{recipes, signals};
use crate::client::Client;
use crate::engine::entries::runtime::Shared;
use crate::engine::random::Rng;
use crate::engine::redis::connection::ConnectionManager;
use crate::engine::redis::credentials::Credentials;
use crate::engine::redis::pool::{Pools, THREADS};
use crate::engine::redis::slots::Node;
use crate::engine::redis::wire::memory;
use crate::engine::servers::cluster::Cluster;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;
use crate::engine::takeover;
use crate::observe::{LockInfo, LossReason, Observer, Observers};
use crate::red_lock::RedLockClient;
use crate::settings::Config;
use crate::sync::{thread, time};

/// How long a run may take, in simulated time.
const LONGEST: Duration = Duration::from_secs(3_600);
/// How often it is looked for holds that nobody has.
const WATCHES: Duration = Duration::from_millis(500);
/// How long after a thread is done with a lock its hold is gone.
const FREES: Duration = Duration::from_secs(2);
/// How long after all is well again everybody has got in, beside a lease.
const GETS_IN: Duration = Duration::from_secs(15);
/// After so long, nothing of a lock is left.
const LEFT: Duration = Duration::from_secs(180);

/// What a run is like.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) seed: u64,
    pub(super) weather: Weather,
    pub(super) plan: Plan,
    /// When it is to fail, whatever it is like.
    pub(super) fails: Option<Duration>,
    processes: usize,
    servers: usize,
    /// They are the nodes of a cluster.
    cluster: bool,
    threads: usize,
    /// The first process signals the others.
    signals: bool,
    rounds: usize,
    /// How long its threads pause at most, in ms.
    pace: usize,
    /// That of each process.
    leases: Vec<Duration>,
    /// By how many parts in a million the clocks of the processes run fast, and then those of the servers.
    drifts: Vec<i64>,
    local_handoff: Duration,
    linger: Duration,
    /// What its threads take part in: the fewer kinds, the more they meet.
    kinds: Vec<&'static str>,
    /// Its threads take part when something goes wrong.
    meets: bool,
}

impl Scene {
    pub(super) fn of(seed: u64, without: &[usize]) -> Scene {
        use Weather::{Calm, Deadly, Lossy, Rough};
        let mut rng = Rng(seed);
        let mut weather = [Calm, Deadly, Rough, Rough, Lossy][rng.below(5)];
        let processes = [1, 2, 2, 3, 3, 4][rng.below(6)];
        // A lock of several servers has a scene of its own.
        let servers = [SERVERS, SERVERS, 2, 1, 1, 1, 1, 1, 1, 1][rng.below(10)];
        let cluster = servers == 2 || servers > 1 && rng.below(2) == 0;
        let several = servers > 1 && !cluster;
        if several && rng.below(2) == 0 {
            // What only several servers promise.
            weather = Lossy;
        }
        // In half of the scenes they wait for each other.
        let all = [KINDS, QUEUES][rng.below(2)];
        let mut kinds = || all[rng.below(all.len())];
        let kinds = if several { vec!["RedLock"] } else { [kinds(), kinds(), kinds(), kinds()].to_vec() };
        // What is promised of signals: the first process signals, others wait, and some of them stop or die.
        let signals = kinds[0] == "condition";
        if signals {
            weather = if weather == Rough { Deadly } else { weather };
        }
        let processes = processes.max(match kinds[0] {
            "condition" | "read/write" => 3,
            _ if weather == Rough => 2,
            _ => 1,
        });
        // The pace, and within what time the faults begin, in ms.
        let (mut pace, within) = [(4_000, 60_000), (4_000, 60_000), (300, 15_000), (20, 3_000)][rng.below(4)];
        // Who waits for a signal stops or dies: see `role()`.
        let turns = signals && weather == Deadly;
        let kinds = if turns { vec!["condition"] } else { kinds };
        // Together less than what a process subtracts from a lease.
        let drifts = rng.below(3) == 0;
        let drifts = (0..processes + servers).map(|i| {
            // The clocks of a cluster's nodes agree.
            if drifts && (i < processes || !cluster) { rng.below(8_001) as i64 - 4_000 } else { 0 }
        });
        let drifts = drifts.collect();
        // What is promised of this kind, where one thing goes wrong again and again.
        let only: &[_] = match kinds[0] {
            "condition" if weather == Deadly => &["stops", "stops", "dies"],
            // What is held when a replica takes over.
            "reentrant" if weather == Lossy && cluster => &["promoted", "isolated"],
            "reentrant" if weather == Lossy => &["failover"],
            _ if weather != Rough || rng.below(2) == 0 => &[],
            // Who keeps the lock is not told that others wait.
            "reentrant" => &["mute"],
            // What a process asked for, which passes it on then, is asked for once more.
            "receipt" => &["apart"],
            // Who stood still hears late of what it had meanwhile.
            "simple" => &["late", "late", "stops"],
            // Who is in the queue dies, and what a reader does not hear of is done again.
            "read/write" => &["unheard", "unheard", "dies"],
            // What is asked for arrives when it is not wanted any more.
            "limited" | "urgent" => &["slow"],
            _ => &[],
        };
        // For how many seconds at most.
        let most = match only {
            ["mute"] => 3,
            ["slow"] => 4,
            ["unheard", ..] => 6,
            ["apart"] => 8,
            _ => 60,
        };
        // So that between two of them all is well again.
        let again = most < 60;
        let within = if again || turns { 240_000 } else { within };
        let kinds = match only {
            ["apart"] => vec!["receipt", "limiter"],
            _ if again => vec![kinds[0]],
            _ => kinds,
        };
        if again {
            // Some read still when another one's reply comes at last.
            pace = if kinds[0] == "read/write" { 4_000 } else { pace.min(300) };
        }
        let mut plan = Plan::new(&mut rng, weather, only, (processes, servers, cluster), within, without);
        let most = Duration::from_secs(most);
        plan.lasts(if again { most * 3 / 4 } else { Duration::ZERO }, most);
        if signals {
            pace = pace.max(300);
            plan.stops_waiters(processes);
        }
        let same = rng.below(2) == 0;
        // So short that many wait for longer than a signal may take to pass by the dead.
        let lease = if signals {
            [3, 3, 3]
        } else if matches!(only, ["apart" | "slow"]) {
            [30, 30, 30]
        } else {
            [3, 10, 30]
        };
        let leases: Vec<_> = (0..processes).map(|_| Duration::from_secs(lease[rng.below(3)])).collect();
        let some = 1 + rng.below(kinds.len()) * rng.below(2);
        Scene {
            seed,
            pace,
            weather,
            fails: None,
            processes,
            servers,
            cluster,
            kinds: if again { kinds } else { kinds[..some].to_vec() },
            meets: again,
            threads: match [1, 1, 2, 3][rng.below(4)] {
                _ if again => 1,
                threads => threads.max(if signals { 2 } else { 1 }),
            },
            rounds: (2 + rng.below(5))
                * if again || pace < 4_000 && !turns { 6 } else { 1 + usize::from(signals) },
            leases: if same { vec![leases[0]; processes] } else { leases },
            drifts,
            linger: Duration::from_secs([2, 20][rng.below(2).max(usize::from(only == ["mute"]))]),
            local_handoff: Duration::from_millis([0, 1, 20][rng.below(3)]),
            signals,
            plan,
        }
    }

    /// The client of a process for a server.
    fn client(&self, ends: Ends) -> Client {
        let lease = self.leases[ends.0];
        let mut config = Config { lease, local_handoff: self.local_handoff, ..Config::default() };
        config.renew_every = lease / 3;
        let server = format!("redis://{}", host(ends)).into_connection_info().expect("a URL");
        let manager = ConnectionManager::new(server, None, Credentials::default(), &config);
        let pools = Pools::new(&config, THREADS).expect("no threads");
        let route = if self.cluster {
            let node = |server| Node { host: host((ends.0, server)), port: PORT };
            let (first, others) = (node(0), (1..self.servers).map(node).collect::<Vec<_>>());
            Route::Cluster(Box::new(Cluster::new(manager, pools, &first, &others)))
        } else {
            Route::One(Server::new(manager, &pools, None))
        };
        let observers = Observers::default();
        observers.add(Losses(ends.0));
        let shared = Shared::new(config, route, Arc::default(), observers);
        takeover::keep_up(&shared);
        Client(shared)
    }

    /// Plays it, as the first thread of an execution.
    pub(super) fn play(&self) {
        time::begin();
        checks::begin();
        recipes::begin();
        signals::begin();
        let (of_processes, of_servers) = self.drifts.split_at(self.processes);
        of_processes.iter().enumerate().for_each(|(process, drift)| time::drifts(process + 1, *drift));
        let net = Arc::new(Net::new(self.seed, of_servers, self.cluster, self.plan.clone()));
        memory::lead_over(net.clone());
        time::pass_when_quiet(LONGEST);
        let carries = net.clone();
        start("network", move || carries.carry());
        let servers = if self.cluster { 1 } else { self.servers };
        let its = |process| (0..servers).map(move |server| self.client((process, server))).collect();
        let clients: Vec<Vec<Client>> = (0..self.processes).map(its).collect();
        let playing = Arc::new(Playing::new(self.processes, self.threads));
        self.start(&clients, &playing, &net);
        self.watch(&clients, &net);
        if let Some(after) = self.fails {
            time::sleep(after);
            panic!("it is to fail");
        }
        playing.wait(&self.plan);
        net.ends();
        self.finish(&clients, &net);
        // Those of dead processes end, too.
        checks::over();
        net.is_over();
        time::go_on();
        clients.iter().flatten().for_each(|client| drop(client.close()));
        drop(clients);
        time::wait_for_others();
    }

    /// The longest.
    fn lease(&self) -> Duration {
        self.leases.iter().max().copied().unwrap_or_default()
    }

    /// Where waiters stop and die, few signals come, and most are waiting then: so it often is a waiter's turn that has
    /// just stopped.
    fn role(&self, process: usize, thread: usize) -> Role {
        match (process, thread) {
            _ if !self.signals || self.weather != Weather::Deadly => Role::Either,
            (0, 0) => Role::Signals,
            _ => Role::Waits,
        }
    }

    /// Starts the threads of all processes.
    fn start(&self, clients: &[Vec<Client>], playing: &Arc<Playing>, net: &Arc<Net>) {
        for (process, its) in clients.iter().enumerate() {
            time::belongs_to(process + 1);
            let red = (its.len() > 1).then(|| RedLockClient::new(its).expect("servers that differ"));
            for thread in 0..self.threads {
                let other = (process + 1) % self.processes;
                let part = Part {
                    client: its[0].clone(),
                    other: (other, clients[other][0].clone()),
                    process,
                    weather: self.weather,
                    pace: self.pace,
                    rng: Rng(self.seed ^ ((process * 8 + thread + 1) as u64) << 32),
                    linger: self.linger,
                    signals: self.signals,
                    role: self.role(process, thread),
                    meets: self.meets,
                    faults: self.plan.faults.iter().map(|(at, ..)| *at).collect(),
                    red: red.clone(),
                    settled: self.plan.settled() + self.lease(),
                    playing: playing.clone(),
                    net: net.clone(),
                };
                let (kinds, rounds) = (self.kinds.clone(), self.rounds);
                start(&format!("thread-{process}-{thread}"), move || part.play(&kinds, rounds));
            }
        }
        time::belongs_to(0);
    }

    /// nothing-left-behind: Redis says of no process for long that it holds what none of its threads is about.
    fn watch(&self, clients: &[Vec<Client>], net: &Arc<Net>) {
        if self.weather == Weather::Lossy || clients[0].len() > 1 {
            return;
        }
        let well = |process| !self.plan.stops(process) && self.plan.settles(process, self.leases[process]);
        let its = clients.iter().enumerate().filter(|(process, _)| well(*process));
        let its: Vec<_> = its.map(|(process, its)| (process, its[0].0.uuid.clone())).collect();
        let (net, plan, linger) = (net.clone(), self.plan.clone(), self.linger);
        start("watch", move || {
            while !checks::is_over() {
                let now = time::elapsed();
                for (process, client) in &its {
                    for lock in LOCKS {
                        let Some(left) = checks::left_alone(lock, *process) else { continue };
                        let kept = if lock == "reentrant" { linger } else { Duration::ZERO };
                        let well = plan.over(now);
                        let late = now > (left + kept).max(well) + FREES;
                        // It may have asked again meanwhile.
                        let held = late
                            && net.lasts(lock, client).is_some()
                            && checks::left_alone(lock, *process) == Some(left);
                        always("nothing-left-behind", !held, || {
                            format!("{lock} by {process}, since {left:?}")
                        });
                    }
                }
                time::sleep(WATCHES);
            }
        });
    }

    /// Checks what came of it, and what is left.
    fn finish(&self, clients: &[Vec<Client>], net: &Net) {
        let now = time::elapsed();
        let alive = |(process, _): &(usize, _)| self.plan.death(*process).is_none_or(|at| at > now);
        time::sleep(self.plan.settled().saturating_sub(time::elapsed()));
        let lease = self.lease();
        // A clock may have been set back, so that the lease of a dead process takes as much longer.
        let back = if self.weather == Weather::Lossy { Duration::from_secs(160) } else { Duration::ZERO };
        let limit = lease + GETS_IN + back;
        let mut all_closed = true;
        for (i, (process, its)) in clients.iter().enumerate().filter(alive).enumerate() {
            time::belongs_to(process + 1);
            // Its time for a call begins when it can make one.
            time::while_stopped();
            if i == 0 {
                recipes::finish(&its[0], self.weather, &self.plan);
            }
            gets_in(&its[0], process, if its.len() > 1 { &[] } else { &self.kinds }, limit);
            for client in its {
                let closed = client.close();
                assert!(closed.is_ok() || self.weather != Weather::Calm, "{closed:?}");
                all_closed &= closed.is_ok();
            }
        }
        time::belongs_to(0);
        let lost = net.lost();
        let (weather, plan, single) = (self.weather, &self.plan, self.threads == 1);
        let (leases, linger) = (&self.leases, self.linger);
        checks::finish(&Run { weather, plan, lost: &lost, leases, lease, linger, single });
        signals::finish(weather, plan, lease);
        let settle = self.leases.iter().enumerate().all(|(process, lease)| plan.settles(process, *lease));
        if all_closed && settle && self.weather != Weather::Lossy && !plan.kills() {
            // close-frees: once what is on its way has arrived, nobody holds anything.
            let held = |(key, _): &(String, bool)| LOCKS.iter().any(|lock| *key == format!("rc:{{{lock}}}"));
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

/// Counts the losses that a process is told.
struct Losses(usize);

impl Observer for Losses {
    fn lost(&self, lock: LockInfo<'_>, _: LossReason) {
        if !checks::is_over() {
            checks::told_lost(lock.name, self.0);
        }
    }
}

fn start(name: &str, part: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.to_owned()).spawn(part).expect("a thread");
}
