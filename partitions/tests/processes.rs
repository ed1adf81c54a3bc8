//! Processes share 64 partitions, while some of them join, leave, are killed, stopped and restarted: there are never
//! two owners of one, few move, and all are owned again in time.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::redis::{Connection, cmd};
use redis_concurrent::{CancellationToken, Client, ErrorKind};
use redis_concurrent_partitions::Partitions;
use redis_concurrent_testkit::{
    Child, RedisCluster, RedisServer, SentinelFleet, hear_parent, is_role, tell_parent,
};
use rustix::time::{ClockId, clock_gettime};

const COUNT: u32 = 64;
const LEASE: Duration = Duration::from_secs(4);
/// Beyond a lease, until all partitions of a dead process must be owned again.
const MARGIN: Duration = Duration::from_secs(2);
/// Long enough for anything that is sure to happen.
const LONG: Duration = Duration::from_secs(60);

/// What a write does to a partition's data, if its token is not too low: all writes, in the order of the server.
const APPEND: &str = "return redis.call('RPUSH', KEYS[1], ARGV[1])";

fn client(url: &str) -> Client {
    Client::builder().url(url).lease(LEASE).renew_every(LEASE / 8).connect().unwrap()
}

/// Nanoseconds, by a clock that all processes share.
fn clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// Owns partitions until it is told to leave, and writes down when it was certain to own which: lines of `own
/// <partition> <token> <time>`, and `lost` or `late` (a write was rejected) with the same.
#[test]
#[ignore = "a role, played by a child process"]
fn role_owner() {
    if !is_role("role_owner") {
        return;
    }
    let client = client(&std::env::var("URL").unwrap());
    let log = File::create(std::env::var("LOG").unwrap()).unwrap();
    let stop = CancellationToken::new();
    let share = Partitions::new(&client, "orders", COUNT).join(&std::process::id().to_string()).unwrap();
    tell_parent("joined").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = hear_parent();
            stop.cancel();
        });
        let note = |what: &str, k: u32, token: u64, at: u64| {
            // One write for each line: a process that is killed leaves whole ones.
            (&log).write_all(format!("{what} {k} {token} {at}\n").as_bytes()).unwrap();
        };
        let outcome = share.run(&stop, |partition| {
            let (k, token) = (partition.number(), partition.token());
            let fenced = client.fenced(&format!("orders:{k}"));
            let append = fenced.script(APPEND);
            loop {
                // Owned now, so owned at the time that was read before.
                let at = clock();
                if partition.remaining().is_zero() {
                    break note("lost", k, token, at);
                }
                note("own", k, token, at);
                match append.run::<u64>(token, &[&format!("rc:{{orders:{k}}}:data")], token) {
                    Err(error) if error.kind() == ErrorKind::Conflict => {
                        break note("late", k, token, clock());
                    }
                    _ => {}
                }
                if partition.revoked().wait_timeout(Duration::from_millis(100)) {
                    break;
                }
            }
        });
        outcome.unwrap();
    });
    client.close().unwrap();
    tell_parent("left").unwrap();
}

/// How long this machine has kept a thread from running that only sleeps: bounds on time are longer by as much.
struct Stalls<'a>(&'a AtomicU64);

impl Stalls<'_> {
    fn so_far(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// What the processes wrote down: for each partition, by token, the process, and the first and the last time at which
/// it was certain to be the owner.
type History = BTreeMap<u32, BTreeMap<u64, (usize, u64, u64)>>;

struct Fleet<'a> {
    url: String,
    folder: PathBuf,
    /// By their numbers, which are in the order of their starts.
    children: BTreeMap<usize, Child>,
    started: usize,
    watching: Partitions,
    stalls: Stalls<'a>,
    /// How many grants there were when it last settled.
    counted: Cell<usize>,
    /// Those that were stopped: they must lose what they had.
    excused: BTreeSet<usize>,
}

impl Fleet<'_> {
    fn start(&mut self, n: usize) {
        let first = self.started;
        self.started += n;
        for i in first..self.started {
            let log = self.folder.join(format!("owner-{i}.log"));
            let env = [("URL", self.url.clone()), ("LOG", log.display().to_string())];
            let child = Child::spawn("role_owner", &env.each_ref().map(|(k, v)| (*k, v.as_str()))).unwrap();
            self.children.insert(i, child);
        }
        for i in first..self.started {
            assert_eq!(self.children[&i].read_line_within(LONG).unwrap(), "joined");
        }
    }

    /// Has these leave, all at once, and waits until they have ended.
    fn leave(&mut self, which: &[usize]) {
        let mut leaving: Vec<_> = which.iter().map(|i| self.children.remove(i).unwrap()).collect();
        leaving.iter_mut().for_each(|child| child.say("leave").unwrap());
        for child in &mut leaving {
            assert_eq!(child.read_line_within(LONG).unwrap(), "left");
            assert!(child.wait_within(LONG).unwrap().success());
        }
    }

    fn history(&self) -> (History, BTreeSet<usize>) {
        let (mut history, mut troubled) = (History::new(), BTreeSet::new());
        for i in 0..self.started {
            let text = fs::read_to_string(self.folder.join(format!("owner-{i}.log"))).unwrap_or_default();
            for line in text.lines() {
                let words: Vec<_> = line.split(' ').collect();
                let [what, numbers @ ..] = &words[..] else { continue };
                let Ok(numbers) = numbers.iter().map(|it| it.parse()).collect::<Result<Vec<u64>, _>>() else {
                    continue;
                };
                let [k, token, at] = numbers[..] else { continue };
                if *what != "own" {
                    troubled.insert(i);
                    continue;
                }
                let of = history.entry(u32::try_from(k).unwrap()).or_default();
                let (_, _, last) = of.entry(token).or_insert((i, at, at));
                *last = at;
            }
        }
        (history, troubled)
    }

    /// Who owns each partition now, as long as all are owned by these, in equal shares.
    fn shared_out(&self, live: &[usize]) -> Option<Vec<usize>> {
        let owners = self.watching.owners().ok()?;
        let process = |i: &usize| (format!("{}@", self.children[i].pid()), *i);
        let processes: Vec<_> = live.iter().map(process).collect();
        let who = |held: &str| processes.iter().find(|(pid, _)| held.starts_with(pid)).map(|(_, i)| *i);
        let owners: Vec<usize> = owners.iter().map(|it| who(it.held_by.as_ref()?)).collect::<Option<_>>()?;
        let shares: Vec<usize> = live.iter().map(|i| owners.iter().filter(|it| *it == i).count()).collect();
        let balanced = shares.iter().max()? - shares.iter().min()? <= 1;
        // The owners have written it down, too.
        let (history, _) = self.history();
        let noted =
            |(k, owner): (u32, &usize)| history.get(&k)?.last_key_value().filter(|(_, it)| it.0 == *owner);
        let noted = (0..).zip(&owners).all(|it| noted(it).is_some());
        (balanced && noted).then_some(owners)
    }

    /// Waits until these own all partitions, which may take `limit`; of those that moved there may be little more
    /// than must. Returns the owners.
    fn settles(
        &self,
        what: &str,
        before: &[usize],
        live: &[usize],
        since: Instant,
        limit: Duration,
    ) -> Vec<usize> {
        let stalled = self.stalls.so_far();
        let after = loop {
            if let Some(owners) = self.shared_out(live) {
                break owners;
            }
            let stalled = self.stalls.so_far() - stalled;
            assert!(
                since.elapsed() < limit + stalled,
                "{what}: not within {limit:?}, and {stalled:?} of stalls"
            );
            thread::sleep(Duration::from_millis(50));
        };
        let took = since.elapsed();
        let grants = |history: &History| history.values().map(BTreeMap::len).sum::<usize>();
        let (history, troubled) = self.history();
        let mut kept: Vec<usize> = live.iter().map(|i| before.iter().filter(|it| *it == i).count()).collect();
        kept.sort_unstable_by(|a, b| b.cmp(a));
        let count = usize::try_from(COUNT).unwrap();
        let share = |i| count / live.len() + usize::from(i < count % live.len());
        let least = count - kept.iter().enumerate().map(|(i, kept)| share(i).min(*kept)).sum::<usize>();
        let moved = grants(&history) - self.counted.replace(grants(&history));
        println!("{what}: {moved} moved, at least {least} must; after {took:?}");
        // (Those that begin do not see each other at once. A machine that stalls for a lease makes others move.)
        if !before.is_empty() && troubled.is_subset(&self.excused) {
            assert!(moved * 5 <= least * 6, "{what}: {moved} moved, {least} must");
        }
        after
    }
}

/// Never two owners: the times at which they were certain to own a partition are in the order of their tokens, and
/// so are the writes that were accepted. `connection` leads to the server with this key.
fn check(fleet: &Fleet<'_>, connection: impl Fn(&str) -> Connection) {
    let (history, _) = fleet.history();
    for k in 0..COUNT {
        let owners = &history[&k];
        for ((earlier, (i, _, last)), (later, (j, first, _))) in owners.iter().zip(owners.iter().skip(1)) {
            assert!(
                last < first,
                "partition {k}: {i} under {earlier} until {last}, {j} under {later} from {first}"
            );
        }
        let key = format!("rc:{{orders:{k}}}:data");
        let writes: Vec<u64> = cmd("LRANGE").arg(&key).arg(0).arg(-1).query(&mut connection(&key)).unwrap();
        assert!(!writes.is_empty() && writes.is_sorted(), "partition {k}: {writes:?}");
        assert!(writes.iter().all(|token| owners.contains_key(token)), "partition {k}: {writes:?}");
    }
}

/// Calls `plays` with nobody at the partitions of this URL, and the logs of processes beside this server's files.
fn play(url: String, server: &RedisServer, plays: impl FnOnce(&mut Fleet<'_>)) {
    let (stalled, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        thread::Builder::new()
            .name("stalls".to_owned())
            .spawn_scoped(scope, || {
                let step = Duration::from_millis(10);
                while !over.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    thread::sleep(step);
                    let late = began.elapsed().saturating_sub(step * 2);
                    stalled.fetch_add(u64::try_from(late.as_nanos()).unwrap(), Ordering::SeqCst);
                }
            })
            .unwrap();
        // Ends that thread, also if the test fails.
        let _over = OnDrop(&over);
        let folder = server.folder().join("owners");
        fs::create_dir_all(&folder).unwrap();
        let mut fleet = Fleet {
            watching: Partitions::new(&client(&url), "orders", COUNT),
            url,
            folder,
            children: BTreeMap::new(),
            started: 0,
            stalls: Stalls(&stalled),
            counted: Cell::new(0),
            excused: BTreeSet::new(),
        };
        plays(&mut fleet);
    });
}

#[test]
fn processes_come_and_go_and_each_partition_has_one_owner() {
    let server = RedisServer::start().unwrap();
    play(server.url(), &server, |fleet| {
        come_and_go(fleet);
        check(fleet, |_| server.connection().unwrap());
    });
}

/// The partitions are in as many slots, on all three servers.
#[test]
fn processes_share_the_partitions_of_a_cluster() {
    let cluster = RedisCluster::start(3).unwrap();
    play(cluster.url(), &cluster.nodes()[0], |fleet| {
        let soon = LEASE + MARGIN;
        fleet.start(2);
        let owners = fleet.settles("two begin", &[], &[0, 1], Instant::now(), LONG);
        fleet.start(1);
        let owners = fleet.settles("one joins", &owners, &[0, 1, 2], Instant::now(), soon);
        let since = Instant::now();
        fleet.children.get_mut(&1).unwrap().kill9().unwrap();
        let owners = fleet.settles("one is killed", &owners, &[0, 2], since, soon);
        let since = Instant::now();
        fleet.leave(&[0]);
        fleet.settles("one leaves", &owners, &[2], since, soon);
        check(fleet, |key| cluster.primary_of(key).unwrap().unwrap().connection().unwrap());
    });
}

#[test]
fn processes_share_the_partitions_over_a_failover() {
    let sentinels = SentinelFleet::start().unwrap();
    play(sentinels.url(), &sentinels.servers()[0], |fleet| {
        fleet.start(3);
        fleet.settles("three begin", &[], &[0, 1, 2], Instant::now(), LONG);
        let former = sentinels.primary().unwrap();
        sentinels.failover();
        let primary = sentinels.primary_after(former);
        // The new primary may not know of who joined or what was granted last.
        let owners = fleet.settles("another primary", &[], &[0, 1, 2], Instant::now(), LONG);
        let since = Instant::now();
        fleet.children.get_mut(&1).unwrap().kill9().unwrap();
        fleet.settles("one is killed", &owners, &[0, 2], since, LEASE + MARGIN);
        check(fleet, |_| sentinels.servers()[primary].connection().unwrap());
    });
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn come_and_go(fleet: &mut Fleet<'_>) {
    let soon = LEASE + MARGIN;
    let now = Instant::now;
    fleet.start(3);
    let owners = fleet.settles("three begin", &[], &[0, 1, 2], now(), LONG);
    fleet.start(2);
    let owners = fleet.settles("two join", &owners, &[0, 1, 2, 3, 4], now(), soon);

    let since = now();
    fleet.children.get_mut(&1).unwrap().kill9().unwrap();
    let owners = fleet.settles("one is killed", &owners, &[0, 2, 3, 4], since, soon);

    fleet.excused.insert(3);
    let since = now();
    fleet.children.get_mut(&3).unwrap().stop().unwrap();
    let owners = fleet.settles("one is stopped", &owners, &[0, 2, 4], since, soon);
    let since = now();
    fleet.children.get_mut(&3).unwrap().cont().unwrap();
    let owners = fleet.settles("it goes on", &owners, &[0, 2, 3, 4], since, soon);

    let since = now();
    fleet.leave(&[0, 3]);
    let mut owners = fleet.settles("two leave", &owners, &[2, 4], since, soon);

    // A rolling restart of all.
    for (old, other) in [(2, 4), (4, 5)] {
        let since = now();
        fleet.leave(&[old]);
        owners = fleet.settles("one leaves to be restarted", &owners, &[other], since, soon);
        fleet.start(1);
        owners = fleet.settles("it is back", &owners, &[other, fleet.started - 1], now(), soon);
    }
    fleet.leave(&[5, 6]);
}
