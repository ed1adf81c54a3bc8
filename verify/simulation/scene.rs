//! The processes of a run: each has a client and some threads, which take locks of several kinds, hold them for a
//! while, and release them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::checks::{self, WHOLE, sometimes};
use super::faults::{Plan, Weather};
use super::net::Net;
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
use crate::error::{Error, ErrorKind};
use crate::guard::Held;
use crate::guard::{Guard, Ownership};
use crate::kinds::Reentrant;
use crate::multi_lock::MultiLock;
use crate::observe::Observers;
use crate::settings::Config;
use crate::sync::{Condvar, Mutex, thread, time};
use crate::wait::Wait;

/// How long a run may take, in simulated time.
const LONGEST: Duration = Duration::from_secs(3_600);
/// How long a process may keep a lock after its release.
const LINGER: Duration = Duration::from_secs(2);
/// After so long, nothing of a lock is left.
const LEFT: Duration = Duration::from_secs(180);

/// What a run is like.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) seed: u64,
    pub(super) weather: Weather,
    pub(super) plan: Plan,
    processes: usize,
    threads: usize,
    rounds: usize,
    lease: Duration,
    local_handoff: Duration,
}

/// The host by which a process reaches the server.
pub(super) fn host(process: usize) -> String {
    format!("p{process}")
}

impl Scene {
    pub(super) fn of(seed: u64, without: &[usize]) -> Scene {
        let mut rng = Rng(seed);
        let weather = [Weather::Calm, Weather::Rough, Weather::Rough, Weather::Lossy][rng.below(4)];
        let processes = 1 + rng.below(3);
        Scene {
            seed,
            weather,
            processes,
            threads: 1 + rng.below(3),
            rounds: 2 + rng.below(5),
            lease: Duration::from_secs([3, 10, 30][rng.below(3)]),
            local_handoff: Duration::from_millis([0, 1, 20][rng.below(3)]),
            plan: Plan::new(&mut rng, weather, processes, without),
        }
    }

    fn client(&self, process: usize) -> Client {
        let mut config = Config { lease: self.lease, local_handoff: self.local_handoff, ..Config::default() };
        config.renew_every = self.lease / 3;
        let server = redis::Client::open(format!("redis://{}", host(process))).expect("a URL");
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
        let net = Arc::new(Net::new(self.seed, self.plan.clone()));
        memory::lead_over(net.clone());
        time::pass_when_quiet(LONGEST);
        let carries = net.clone();
        start("network", move || carries.carry());
        let clients: Vec<Client> = (0..self.processes).map(|process| self.client(process)).collect();
        let playing = Arc::new((Mutex::new(self.processes * self.threads), Condvar::new()));
        let items = Arc::new(AtomicI64::new(0));
        for (process, client) in clients.iter().enumerate() {
            for thread in 0..self.threads {
                let part = Part {
                    client: client.clone(),
                    other: clients[(process + 1) % self.processes].clone(),
                    process,
                    weather: self.weather,
                    rng: Rng(self.seed ^ ((process * 8 + thread + 1) as u64) << 32),
                    items: items.clone(),
                };
                let (playing, rounds) = (playing.clone(), self.rounds);
                start(&format!("thread-{process}-{thread}"), move || {
                    part.play(rounds);
                    *playing.0.lock() -= 1;
                    playing.1.notify_all();
                });
            }
        }
        let mut left = playing.0.lock();
        while *left > 0 {
            playing.1.wait(&mut left);
        }
        drop(left);
        for client in &clients {
            let closed = client.close();
            assert!(closed.is_ok() || self.weather != Weather::Calm, "{closed:?}");
        }
        checks::finish(self.weather, &self.plan, self.lease);
        // nothing-left-behind: but permits, which are their users' own.
        let of_locks = |key: &str| {
            !key.ends_with(":fence") && !["rc:{semaphore}", "rc:{semaphore}:conditions"].contains(&key)
        };
        let left: Vec<_> =
            net.keys().into_iter().filter(|(key, expires)| of_locks(key) && !expires).collect();
        assert!(left.is_empty(), "nothing-left-behind: these never expire: {left:?}");
        time::sleep(LEFT);
        let left: Vec<_> = net.keys().into_iter().filter(|(key, _)| of_locks(key)).collect();
        assert!(left.is_empty(), "nothing-left-behind: {left:?}");
        net.is_over();
        drop(clients);
        time::wait_for_others();
    }
}

fn start(name: &str, part: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.to_owned()).spawn(part).expect("a thread");
}

/// What one thread does.
struct Part {
    client: Client,
    /// Of another process, if there is one.
    other: Client,
    process: usize,
    weather: Weather,
    rng: Rng,
    /// What was put in under the condition's lock, and not yet taken out.
    items: Arc<AtomicI64>,
}

impl Part {
    fn play(mut self, rounds: usize) {
        for _ in 0..rounds {
            self.pause(4_000);
            match self.rng.below(8) {
                0 => self.pass_on(),
                1 => {
                    let lock = self.client.reentrant_lock("reentrant");
                    let lock = if self.rng.below(2) == 0 { lock.linger(LINGER) } else { lock };
                    let wait = self.wait();
                    self.visit(
                        "reentrant",
                        (WHOLE, WHOLE),
                        || lock.lock_with(wait),
                        |guard| Some(guard.token()),
                    );
                }
                2 => {
                    let name = ["simple", "simple", "right"][self.rng.below(3)];
                    let lock = self.client.simple_lock(name);
                    let wait = self.wait();
                    self.visit(name, (WHOLE, WHOLE), || lock.lock_with(wait), |guard| Some(guard.token()));
                }
                3 => {
                    let lock = self.client.read_write_lock("files");
                    let wait = self.wait();
                    if self.rng.below(3) == 0 {
                        self.visit("files", (WHOLE, WHOLE), || lock.write_lock().lock_with(wait), |_| None);
                    } else {
                        self.visit("files", (1, WHOLE), || lock.read_lock().lock_with(wait), |_| None);
                    }
                }
                4 => {
                    let semaphore = self.client.semaphore("semaphore");
                    self.expects(semaphore.try_set_permits(2));
                    let n = 1 + self.rng.below(2) as u32;
                    let wait = self.wait();
                    self.visit("semaphore", (n, 2), || semaphore.acquire_with(n, wait), |_| None);
                }
                5 => self.both(),
                _ => self.exchange(),
            }
        }
    }

    fn pause(&mut self, most: usize) {
        time::sleep(Duration::from_millis(self.rng.below(most) as u64));
    }

    fn wait(&mut self) -> Wait<'static> {
        match self.rng.below(3) {
            0 => Wait::timeout(Duration::from_millis(self.rng.below(6_000) as u64)),
            1 if self.rng.below(3) == 0 => Wait::once(),
            _ => Wait::forever(),
        }
    }

    /// Returns the result unless it is one of the errors that a fault may cause.
    fn expects<T>(&self, result: Result<T, Error>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::OutcomeUnknown => sometimes("a call is told that its outcome is unknown"),
            ErrorKind::Unavailable => sometimes("a call is told that Redis is unavailable"),
            // A semaphore whose permits could not be set, or were forgotten.
            ErrorKind::Refused => {}
            ErrorKind::LeaseLost | ErrorKind::NotOwner => {}
            _ => panic!("no promised error: {error:?}"),
        }
        assert!(self.weather != Weather::Calm, "nothing went wrong, and yet: {error:?}");
        None
    }

    fn visit<L: Held, O: Ownership>(
        &mut self,
        name: &'static str,
        takes: (u32, u32),
        acquire: impl FnOnce() -> Result<Option<Guard<L, O>>, Error>,
        token: impl Fn(&Guard<L, O>) -> Option<u64>,
    ) {
        let asked = time::elapsed();
        let Some(got) = self.expects(acquire()) else { return };
        let Some(guard) = got else { return sometimes("a wait ends by its timeout") };
        let hold = checks::held(name, self.process, takes, token(&guard), asked);
        self.stay(hold, &guard);
        checks::ends(hold);
        let released = guard.unlock();
        self.expects(released);
        checks::released(hold);
    }

    /// Holds a lock, and passes the hold on to another process by a receipt.
    fn pass_on(&mut self) {
        let asked = time::elapsed();
        let lock = self.client.reentrant_lock("reentrant");
        let wait = self.wait();
        let Some(got) = self.expects(lock.lock_owned_with(wait)) else { return };
        let Some(guard) = got else { return sometimes("a wait ends by its timeout") };
        let hold = checks::held("reentrant", self.process, (WHOLE, WHOLE), Some(guard.token()), asked);
        self.stay(hold, &guard);
        let adopted = guard.into_receipt().and_then(|receipt| {
            self.pause(1_500);
            self.other.adopt::<Reentrant>(&receipt)
        });
        if let Some(guard) = self.expects(adopted) {
            sometimes("a hold is passed on by a receipt");
            self.stay(hold, &guard);
            checks::ends(hold);
            let released = guard.unlock();
            self.expects(released);
            checks::released(hold);
        }
    }

    /// Holds two locks at once.
    fn both(&mut self) {
        let asked = time::elapsed();
        let (one, other) = (self.client.reentrant_lock("left"), self.client.simple_lock("right"));
        let wait = self.wait();
        let Some(got) = self.expects(MultiLock::new(&[&one, &other]).lock_with(wait)) else { return };
        let Some(guard) = got else { return sometimes("a wait ends by its timeout") };
        let tokens = guard.tokens();
        let names = ["left", "right"].into_iter().zip(tokens);
        let holds: Vec<_> = names
            .map(|(name, token)| checks::held(name, self.process, (WHOLE, WHOLE), token, asked))
            .collect();
        for _ in 0..self.rng.below(5) {
            self.pause(1_000);
            if guard.is_lost() {
                break;
            }
            holds.iter().for_each(|hold| checks::valid(*hold));
        }
        sometimes("two locks are held at once");
        holds.iter().for_each(|hold| checks::ends(*hold));
        let released = guard.unlock();
        self.expects(released);
        holds.iter().for_each(|hold| checks::released(*hold));
    }

    /// Holds it for a while, and notes until when it is valid.
    fn stay<L: Held, O: Ownership>(&mut self, hold: usize, guard: &Guard<L, O>) {
        let steps = 1 + [self.rng.below(3), self.rng.below(30)][self.rng.below(2)];
        for _ in 0..steps {
            self.pause(1_000);
            if guard.is_lost() {
                return sometimes("a hold is lost");
            }
            checks::valid(hold);
        }
    }

    /// Puts an item in, or waits for one and takes it out.
    fn exchange(&mut self) {
        let lock = self.client.reentrant_lock("exchange");
        let filled = lock.condition("filled");
        let asked = time::elapsed();
        let Some(mut guard) = self.expects(lock.lock()) else { return };
        let hold = checks::held("exchange", self.process, (WHOLE, WHOLE), Some(guard.token()), asked);
        self.stay(hold, &guard);
        if self.rng.below(2) == 0 {
            self.items.fetch_add(1, Ordering::SeqCst);
            let told = filled.signal(&guard);
            self.expects(told);
        } else if self.items.load(Ordering::SeqCst) == 0 {
            checks::ends(hold);
            let woken = filled.wait_with(&mut guard, Duration::from_secs(5));
            checks::released(hold);
            if self.expects(woken) == Some(true) {
                sometimes("a waiter for a condition is signalled");
            }
            let released = guard.unlock();
            self.expects(released);
            return;
        }
        checks::ends(hold);
        let released = guard.unlock();
        self.expects(released);
        checks::released(hold);
    }
}
