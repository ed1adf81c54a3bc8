//! Every kind's operations below the client, and what they are run on: a holder, a waiter, perhaps a waiter for
//! a condition.

use redis::{Commands, RedisResult};
use redis_concurrent::kinds::{Kind, Permits, Read, Reentrant, Simple, Write};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::rig::{Ask, LEASE, PREFIX, RECORD, Rig, USUAL, linked};

/// A kind, and as what its first and its second client ask for it: `a` is inside and `b` waits, where anybody
/// can be inside.
#[derive(Clone, Copy)]
pub struct Case {
    pub kind: &'static str,
    pub rule: &'static str,
    pub inside: &'static str,
    pub waits: &'static str,
    /// It has conditions.
    pub rooms: bool,
}

pub const CASES: [Case; 11] = [
    Case { kind: "simple", rule: Simple::RULE, inside: "", waits: "", rooms: true },
    Case { kind: "reentrant", rule: Reentrant::RULE, inside: "", waits: "", rooms: true },
    Case { kind: "read-write", rule: Read::RULE, inside: "read", waits: "write", rooms: false },
    Case { kind: "read-write", rule: Write::RULE, inside: "write", waits: "read", rooms: true },
    Case { kind: "semaphore", rule: Permits::RULE, inside: "1", waits: "1", rooms: false },
    Case {
        kind: "bulkhead",
        rule: include_str!("../../examples/own_kind.lua"),
        inside: "1",
        waits: "1",
        rooms: false,
    },
    Case {
        kind: "stock",
        rule: include_str!("../../lua/inventory.lua"),
        inside: "lock|1|tee",
        waits: "lock|1|tee",
        rooms: false,
    },
    Case { kind: "latch", rule: include_str!("../../lua/latch.lua"), inside: "", waits: "", rooms: false },
    Case {
        kind: "barrier",
        rule: include_str!("../../lua/barrier.lua"),
        inside: "2 then",
        waits: "2",
        rooms: false,
    },
    Case {
        kind: "election",
        rule: include_str!("../../lua/election.lua"),
        inside: "lead|a",
        waits: "lead|b",
        rooms: false,
    },
    Case { kind: "once", rule: include_str!("../../lua/once.lua"), inside: "", waits: "", rooms: false },
];

/// What has become of the holder by the time that the memory is full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Holder {
    /// It was let in just now.
    Young,
    /// It was renewed since its first lease: whatever knows when the first one lapses is out of date.
    Renewed,
    /// Its lease is over, and nobody has looked since.
    Lapsed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Must {
    /// It is done.
    Pass,
    /// It is done, or refused for want of memory and leaves no trace.
    BeClean,
}
use Must::{BeClean, Pass};

pub type Operation = (&'static str, Must, fn(&mut OccupiedLock) -> RedisResult<Vec<String>>);

pub struct OccupiedLock {
    pub rig: Rig,
    case: Case,
    /// Where in the order `b` came.
    pub arrival: String,
}

impl OccupiedLock {
    pub fn asks(&mut self, how: &str, who: &str, more: Ask<'_>) -> RedisResult<Vec<String>> {
        let (owner, args) =
            (self.rig.id(who, 1), if who == "a" { self.case.inside } else { self.case.waits });
        self.rig.acquire(how, &owner, Ask { args, ..more })
    }

    pub fn leaves(&mut self, who: &str, more: &[&str]) -> RedisResult<Vec<String>> {
        let (owner, source) = (self.rig.id(who, 1), self.rig.scripts.leave.clone());
        self.rig.eval(&source, &[&[&*owner, "30000", PREFIX, "3000"], more].concat())
    }

    fn changes(&mut self, who: &str, what: &[&str]) -> RedisResult<Vec<String>> {
        let id = self.rig.id(who, 9);
        self.rig.update(&id, what)
    }

    /// A request of the condition's waiter `who`, in place of the hold `from`.
    pub fn awaits(&mut self, how: &str, who: &str, from: &str) -> RedisResult<Vec<String>> {
        let (owner, from) =
            (self.rig.id(who, 1), if from.is_empty() { from.into() } else { self.rig.id(from, 1) });
        let (source, args) = (self.rig.scripts.wait_for.clone(), self.case.inside);
        self.rig.eval(&source, &[&owner, "30000", PREFIX, "3000", how, args, RECORD, &from, "", "full"])
    }

    fn signals(&mut self, what: &str) -> RedisResult<Vec<String>> {
        let (owner, source) = (self.rig.a(), self.rig.scripts.signal.clone());
        self.rig.eval(&source, &[&owner, "0", PREFIX, "3000", "full", what])
    }

    fn quits(&mut self, who: &str) -> RedisResult<Vec<String>> {
        let (owner, source) = (self.rig.id(who, 1), self.rig.scripts.quit.clone());
        self.rig.eval(&source, &[&owner, "0", PREFIX, "3000", "1", "full"])
    }

    pub fn is_inside(&mut self, who: &str) -> bool {
        let owner = self.rig.id(who, 1);
        // Each half of a read/write lock sees its own.
        let views = ["read", "write", "lock"].map(|args| self.rig.inspect_as(args).unwrap());
        views.iter().any(|view| view[1].contains(&owner))
    }

    /// `a` is inside, and `b` waits and hears what it is told; with `room`, one more waits for a condition.
    pub fn set(server: &RedisServer, case: Case, name: &str, holder: Holder, room: bool) -> OccupiedLock {
        let rig = Rig::of(
            server,
            case.kind,
            case.rule,
            &format!("{name}-{}", case.inside.replace(['|', ' '], "-")),
        );
        let mut lock = OccupiedLock { rig, case, arrival: String::new() };
        match case.kind {
            "semaphore" => drop(lock.changes("user", &["set", "1"]).unwrap()),
            "stock" => drop(lock.changes("user", &["add_stock", "3", "tee"]).unwrap()),
            "latch" => drop(lock.changes("user", &["set", "2"]).unwrap()),
            _ => {}
        }
        if room {
            assert_eq!(lock.asks("wait", "w", Ask { args: "", ..USUAL }).unwrap()[0], "1");
            assert_eq!(lock.awaits("wait", "c", "w").unwrap()[0], "0");
        }
        let order: &[&str] = match case.kind {
            "latch" => &["b"],
            // The last one to come is let in.
            "barrier" => &["b", "a"],
            _ => &["a", "b"],
        };
        for who in order {
            let answer = lock.asks("wait", who, USUAL).unwrap();
            assert_eq!(answer[0], if *who == "a" { "1" } else { "0" }, "{name}: {answer:?}");
            if *who == "b" {
                lock.arrival = answer[3].clone();
            }
        }
        let past = (lock.rig.now() / 1000 - 1).to_string();
        let (state, a) = (lock.rig.keys[0].clone(), lock.rig.a());
        match holder {
            Holder::Young => {}
            Holder::Renewed if ["read-write", "semaphore"].contains(&case.kind) => {
                let _: () = lock.rig.con.hset(&state, "soon", past).unwrap();
            }
            Holder::Renewed => {}
            Holder::Lapsed => match case.kind {
                "latch" => {}
                "stock" | "barrier" => {
                    let source = "local field, at = ARGV[1], tonumber(ARGV[2])
                        local e = cmsgpack.unpack(redis.call('HGET', KEYS[1], field))
                        e[at] = tonumber(ARGV[3])
                        redis.call('HSET', KEYS[1], field, cmsgpack.pack(e))
                        return {}";
                    let (field, at) = if case.kind == "stock" { ("lock", "2") } else { (&*a, "1") };
                    lock.rig.eval(source, &[field, at, &past]).unwrap();
                }
                "simple" | "reentrant" | "election" | "once" => {
                    lock.rig.set_lease(&a, 1);
                    wait_until(std::time::Duration::from_secs(20), "it has lapsed", || !lock.rig.exists(0));
                }
                _ => lock.rig.set_lease(&a, -1),
            },
        }
        lock
    }
}

/// What there is to do with any of them.
const OF_ALL: [Operation; 13] = [
    ("a try of a newcomer", BeClean, |it| it.asks("try", "n", USUAL)),
    ("a wait of a newcomer", BeClean, |it| it.asks("wait", "n", USUAL)),
    ("a wait of a waiter with a position", BeClean, |it| {
        let arrival = it.arrival.clone();
        it.asks("wait", "b", Ask { arrival: &arrival, ..USUAL })
    }),
    ("a heartbeat", Pass, |it| {
        let arrival = it.arrival.clone();
        it.asks("keep", "b", Ask { arrival: &arrival, ..USUAL })
    }),
    ("a heartbeat without a queue position", Pass, |it| it.asks("keep", "n", USUAL)),
    ("an ask of a holder", Pass, |it| it.asks("try", "a", USUAL)),
    ("an unlock", Pass, |it| it.leaves("a", &[])),
    ("an unlock with a tombstone", Pass, |it| it.leaves("a", &["1"])),
    ("an unlock with the next ask", Pass, |it| {
        let (args, next) = (it.case.waits, it.rig.id("n", 1));
        it.leaves("a", &["0", args, RECORD, &next])
    }),
    ("giving up", Pass, |it| it.leaves("b", &["1"])),
    ("a leave of nobody", Pass, |it| it.leaves("n", &["1"])),
    ("a look", Pass, |it| it.rig.inspect().map(|answer| answer.concat())),
    ("a share", Pass, |it| it.asks("share", "a", USUAL)),
];

const OF_HOLDS: [Operation; 2] = [
    ("a renewal", Pass, |it| {
        let a = it.rig.a();
        it.rig.renew(&a, LEASE)
    }),
    ("a last renewal", Pass, |it| {
        let (a, source) = (it.rig.a(), it.rig.scripts.renew.clone());
        it.rig.eval(&source, &[&a, "30000", PREFIX, "3000", "1"])
    }),
];

const OF_RECEIPTS: [Operation; 1] = [("an adoption", Pass, |it| {
    let (from, to) = (it.rig.a(), it.rig.id("n", 1));
    it.rig.adopt(&to, &from)
})];

const OF_CONDITIONS: [Operation; 6] = [
    ("a wait for a signal", Pass, |it| it.awaits("wait", "n", "a")),
    ("a heartbeat of a waiter for a signal", Pass, |it| it.awaits("keep", "c", "")),
    ("a way back from there", Pass, |it| it.awaits("back", "c", "")),
    ("a signal", Pass, |it| it.signals("one")),
    ("a signal to all", Pass, |it| it.signals("all")),
    ("quitting", Pass, |it| it.quits("c")),
];

fn changes_of(kind: &str) -> &'static [Operation] {
    match kind {
        "semaphore" => &[
            ("set", BeClean, |it| it.changes("u", &["set", "2"])),
            ("set to nothing", BeClean, |it| it.changes("u", &["set", "0"])),
            ("first", BeClean, |it| it.changes("u", &["first", "2"])),
            ("add", BeClean, |it| it.changes("u", &["add", "1"])),
            ("reduce", BeClean, |it| it.changes("u", &["add", "-1"])),
            ("giving some back", Pass, |it| {
                let a = it.rig.a();
                it.changes("u", &["keep", "0", &a])
            }),
            ("expire", Pass, |it| it.changes("u", &["expire", "60000"])),
            ("delete", Pass, |it| it.changes("u", &["delete"])),
        ],
        "stock" => &[
            ("add_stock", BeClean, |it| it.changes("u", &["add_stock", "1", "tee"])),
            ("delete", Pass, |it| it.changes("u", &["delete"])),
        ],
        "latch" => &[
            ("down", Pass, |it| it.changes("u", &["down"])),
            ("down to nothing", Pass, |it| {
                it.changes("u", &["down"])?;
                it.changes("v", &["down"])
            }),
            ("set", BeClean, |it| it.changes("u", &["set", "1"])),
            ("reset", Pass, |it| it.changes("u", &["reset", "1"])),
            ("expire", Pass, |it| it.changes("u", &["expire", "60000"])),
            ("delete", Pass, |it| it.changes("u", &["delete"])),
        ],
        "barrier" => &[
            ("open", Pass, |it| {
                let a = it.rig.a();
                it.changes("u", &["open", "2", &a])
            }),
            ("reset", Pass, |it| it.changes("u", &["reset"])),
        ],
        "election" => &[("proclaim", Pass, |it| {
            let a = it.rig.a();
            it.changes("u", &["proclaim", "another value", &a])
        })],
        "once" => &[
            // By the owner of the attempt.
            ("done", Pass, |it| {
                let a = it.rig.a();
                it.rig.update(&a, &["done", "60000", "the answer"])
            }),
            ("forget", Pass, |it| it.changes("u", &["forget"])),
        ],
        _ => &[],
    }
}

/// What there is to do with this kind; with `true`, where one more waits for a condition.
pub fn operations(case: Case) -> Vec<(&'static Operation, bool)> {
    let scripts = linked(case.rule);
    let some = |those: &'static [Operation], if_so| those.iter().filter(move |_| if_so);
    some(&OF_ALL, true)
        .chain(some(&OF_HOLDS, case.kind != "latch"))
        .chain(some(&OF_RECEIPTS, scripts.adopt.is_some()))
        .chain(some(changes_of(case.kind), true))
        .map(|it| (it, false))
        .chain(some(&OF_CONDITIONS, case.rooms).map(|it| (it, true)))
        .collect()
}
