//! Sixteen processes on one inventory, of which one after the other is killed: Redis counts what they saw, but for
//! what was under way at a kill; and a lease later every unit is accounted for.
//!
//! `DECISIONS` in the environment says how many are made (10,000; in full 100,000), `SEED` by which chance.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::Inventory;
use redis_concurrent::inventory::Order;
use redis_concurrent_testkit::{Child, RedisServer, is_role, tell_parent, wait_until};

use crate::inventory::balanced;
use crate::support::{LONG, Random, SOON, builder, connected, env, ms, patiently};

const PROCESSES: usize = 16;
/// Of each child: what a killed one has is soon back.
const LEASE: Duration = ms(5000);
/// What a crowd of processes takes on the busiest machine, unless it hangs.
const AGES: Duration = Duration::from_secs(300);
/// So few that it is sold out most of the time, and a decision may be any.
const STOCK: u64 = 40;
/// Units of the largest order.
const MOST: u64 = 4;

const SKUS: [&str; 2] = ["tee", "mug"];

#[test]
#[ignore = "a role, played by a child process"]
fn role_seller() {
    if !is_role("inventory::chance::role_seller") {
        return;
    }
    let client = connected(|| builder(&env("URL")).lease(LEASE).renew_every(ms(500)).command_timeout(LONG));
    let inventory = client.inventory("sale");
    let mut random = Random::of(env("RANDOM").parse().unwrap());
    let mut turn = 0_u64;
    tell_parent("selling").unwrap();
    loop {
        turn += 1;
        let n = 1 + random.below(2);
        let (order, units) = match random.below(3) {
            0 => (Order::of(SKUS[0], n), n),
            1 => (Order::of(SKUS[1], n), n),
            _ => (Order::of(SKUS[0], n).and(SKUS[1], n), 2 * n),
        };
        let order = order.id(&format!("{}-{turn}", env("RANDOM")));
        // Whichever other process is killed meanwhile, no thread here waits, and nothing fails.
        let Some(reservation) = inventory.try_reserve(&order).unwrap() else {
            tell_parent("none").unwrap();
            thread::sleep(random.micros(300));
            continue;
        };
        thread::sleep(random.micros(500));
        let (outcome, says) = match random.below(3) {
            0 => (reservation.commit(), units.to_string()),
            _ => (reservation.cancel(), "back".to_owned()),
        };
        match outcome {
            Ok(()) => tell_parent(&says).unwrap(),
            // The machine stood still for a lease.
            Err(error) if error.is_lease_lost() => tell_parent("lost").unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// One process after another in the same place, and what they told, the dead ones too.
struct Place<'a> {
    server: &'a RedisServer,
    random: Random,
    child: Child,
    kills: u64,
    decisions: u64,
    sales: u64,
    units: u64,
}

impl<'a> Place<'a> {
    fn new(server: &'a RedisServer, mut random: Random) -> Place<'a> {
        let child = seller(server, &mut random);
        Place { server, random, child, kills: 0, decisions: 0, sales: 0, units: 0 }
    }

    /// Hears what the child tells: whether it did in time.
    fn hear(&mut self, limit: Duration) -> io::Result<bool> {
        let line = match self.child.read_line_within(limit) {
            Ok(line) => line,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(false),
            Err(error) => return Err(error),
        };
        self.decisions += 1;
        if let Ok(units) = line.parse::<u64>() {
            self.sales += 1;
            self.units += units;
        }
        Ok(true)
    }

    fn kill(&mut self) {
        self.child.kill9().unwrap();
        self.kills += 1;
        while let Ok(true) = self.hear(AGES) {}
    }

    /// Until all decisions are `made`, by one child after another, each of which is killed whatever it is at.
    fn play(mut self, made: &AtomicU64, decisions: u64) -> Self {
        loop {
            let dies = Instant::now() + ms(200) + self.random.micros(2_800_000);
            while Instant::now() < dies && made.load(SeqCst) < decisions {
                made.fetch_add(self.hear(ms(50)).unwrap().into(), SeqCst);
            }
            // Not always when it has just told something.
            thread::sleep(self.random.micros(3_000));
            self.kill();
            if made.load(SeqCst) >= decisions {
                return self;
            }
            self.child = seller(self.server, &mut self.random);
        }
    }
}

fn seller(server: &RedisServer, random: &mut Random) -> Child {
    let env = [("URL", &*server.url()), ("RANDOM", &*random.seed())];
    let child = Child::spawn("inventory::chance::role_seller", &env).unwrap();
    assert_eq!(child.read_line_within(3 * LONG).unwrap(), "selling");
    child
}

/// Sums to what is in stock of both SKUs together.
fn sums(inventory: &Inventory) -> [u64; 4] {
    let [tee, mug] = SKUS.map(|sku| balanced(inventory.stock(sku).unwrap()));
    std::array::from_fn(|i| tee[i] + mug[i])
}

#[test]
fn redis_counts_what_the_processes_saw_whichever_is_killed() {
    let mut random = Random::new("redis_counts_what_the_processes_saw_whichever_is_killed");
    let decisions: u64 = std::env::var("DECISIONS").map_or(10_000, |n| n.parse().unwrap());
    let server = RedisServer::start().unwrap();
    let office = patiently(&server.url()).inventory("sale");
    for sku in SKUS {
        office.add_stock(sku, STOCK).unwrap();
    }
    let began = Instant::now();
    let (made, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let places: Vec<_> = thread::scope(|scope| {
        // Looks all the time, and restocks what is sold out.
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                sums(&office);
                for sku in SKUS.into_iter().filter(|sku| office.stock(sku).unwrap().available == 0) {
                    office.add_stock(sku, STOCK).unwrap();
                }
                thread::sleep(ms(2));
            }
        });
        let places: Vec<_> = (0..PROCESSES)
            .map(|_| {
                let (random, made, server) = (random.fork(), &made, &server);
                scope.spawn(move || Place::new(server, random).play(made, decisions))
            })
            .collect();
        let ends: Vec<_> = places.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, SeqCst);
        ends.into_iter().map(|end| end.unwrap()).collect()
    });
    let died = Instant::now();
    wait_until(LONG, "what the dead had reserved is back", || sums(&office)[2] == 0);
    assert!(died.elapsed() < LEASE + 2 * SOON, "only {:?} later", died.elapsed());

    let [stocked, available, _, sold] = sums(&office);
    let sum = |count: fn(&Place<'_>) -> u64| places.iter().map(count).sum::<u64>();
    let [decided, kills] = [sum(|it| it.decisions), sum(|it| it.kills)];
    let [sales, units] = [sum(|it| it.sales), sum(|it| it.units)];
    let counted = count_sales(&server);
    println!(
        "{decided} decisions and {kills} kills in {:?}: {sales} of {counted} sales were told, {units} of {sold} units; \
         {available} of {stocked} are left",
        began.elapsed()
    );
    assert!(decided >= decisions && sales > 0);
    // One call of each process is under way when it is killed.
    assert!((sales..=sales + kills).contains(&counted));
    assert!((units..=units + kills * MOST).contains(&sold));
    // A caller that comes afterwards finds everything in order.
    office.add_stock("tee", 3).unwrap();
    office.try_reserve(&Order::of("tee", 3)).unwrap().unwrap().commit().unwrap();
    assert_eq!(sums(&office), [stocked + 3, available, 0, sold + 3]);
}

/// How many ids are remembered as sold.
fn count_sales(server: &RedisServer) -> u64 {
    let members: Vec<String> = redis::cmd("ZRANGE")
        .arg("rc:{sale}:tombstones")
        .arg(0)
        .arg(-1)
        .query(&mut server.connection().unwrap())
        .unwrap();
    members.iter().filter(|it| it.starts_with("id|")).count() as u64
}
