//! Every kind's operations below the client while the server's memory is full: what keeps, ends or hands on
//! something is done, what takes more room is refused and leaves no trace.

use redis::{Commands, RedisResult, cmd};
use redis_concurrent::{Kind, Permits, Read, Reentrant, Simple, Write};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::rig::{Ask, LEASE, PREFIX, RECORD, Rig, USUAL, server_that_fills};

/// A kind, and as what its first and its second client ask for it: `a` is inside and `b` waits, where anybody
/// can be inside.
#[derive(Clone, Copy)]
struct Case {
    kind: &'static str,
    rule: &'static str,
    inside: &'static str,
    waits: &'static str,
    /// It has conditions.
    rooms: bool,
}

const CASES: [Case; 11] = [
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
enum Holder {
    /// It was let in just now.
    Young,
    /// It was renewed since its first lease: whatever knows when the first one lapses is out of date.
    Renewed,
    /// Its lease is over, and nobody has looked since.
    Lapsed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Must {
    /// It is done.
    Pass,
    /// It is done, or refused for want of memory and leaves no trace.
    BeClean,
}
use Must::{BeClean, Pass};

type Operation = (&'static str, Must, fn(&mut Scene) -> RedisResult<Vec<String>>);

struct Scene {
    rig: Rig,
    case: Case,
    /// Where in the order `b` came.
    arrival: String,
}

impl Scene {
    fn asks(&mut self, how: &str, who: &str, more: Ask<'_>) -> RedisResult<Vec<String>> {
        let (owner, args) =
            (self.rig.id(who, 1), if who == "a" { self.case.inside } else { self.case.waits });
        self.rig.acquire(how, &owner, Ask { args, ..more })
    }

    fn leaves(&mut self, who: &str, more: &[&str]) -> RedisResult<Vec<String>> {
        let (owner, source) = (self.rig.id(who, 1), self.rig.scripts.leave.clone());
        self.rig.eval(&source, &[&[&*owner, "30000", PREFIX, "3000"], more].concat())
    }

    fn changes(&mut self, who: &str, what: &[&str]) -> RedisResult<Vec<String>> {
        let id = self.rig.id(who, 9);
        self.rig.change(&id, what)
    }

    /// A request of the condition's waiter `who`, in place of the hold `from`.
    fn awaits(&mut self, how: &str, who: &str, from: &str) -> RedisResult<Vec<String>> {
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

    fn is_inside(&mut self, who: &str) -> bool {
        let owner = self.rig.id(who, 1);
        // Each half of a read/write lock sees its own.
        let views = ["read", "write", "lock"].map(|args| self.rig.inspect_as(args).unwrap());
        views.iter().any(|view| view[1].contains(&owner))
    }

    /// `a` is inside, and `b` waits and hears what it is told; with `room`, one more waits for a condition.
    fn set(server: &RedisServer, case: Case, name: &str, holder: Holder, room: bool) -> Scene {
        let rig = Rig::of(
            server,
            case.kind,
            case.rule,
            &format!("{name}-{}", case.inside.replace(['|', ' '], "-")),
        );
        let mut scene = Scene { rig, case, arrival: String::new() };
        match case.kind {
            "semaphore" => drop(scene.changes("user", &["set", "1"]).unwrap()),
            "stock" => drop(scene.changes("user", &["add_stock", "3", "tee"]).unwrap()),
            "latch" => drop(scene.changes("user", &["set", "2"]).unwrap()),
            _ => {}
        }
        if room {
            assert_eq!(scene.asks("wait", "w", Ask { args: "", ..USUAL }).unwrap()[0], "1");
            assert_eq!(scene.awaits("wait", "c", "w").unwrap()[0], "0");
        }
        let order: &[&str] = match case.kind {
            "latch" => &["b"],
            // The last one to come is let in.
            "barrier" => &["b", "a"],
            _ => &["a", "b"],
        };
        for who in order {
            let answer = scene.asks("wait", who, USUAL).unwrap();
            assert_eq!(answer[0], if *who == "a" { "1" } else { "0" }, "{name}: {answer:?}");
            if *who == "b" {
                scene.arrival = answer[3].clone();
            }
        }
        let past = (scene.rig.now() / 1000 - 1).to_string();
        let (state, a) = (scene.rig.keys[0].clone(), scene.rig.a());
        match holder {
            Holder::Young => {}
            Holder::Renewed if ["read-write", "semaphore"].contains(&case.kind) => {
                let _: () = scene.rig.con.hset(&state, "soon", past).unwrap();
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
                    scene.rig.eval(source, &[field, at, &past]).unwrap();
                }
                "simple" | "reentrant" | "election" | "once" => {
                    scene.rig.set_lease(&a, 1);
                    wait_until(std::time::Duration::from_secs(20), "it has lapsed", || !scene.rig.exists(0));
                }
                _ => scene.rig.set_lease(&a, -1),
            },
        }
        scene
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

/// Of these the loop that ends them may let somebody else in.
const OF_A_HOLDER: [&str; 3] = ["an ask of a holder", "a share", "an adoption"];

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
                it.changes("u", &["open", &a, "2"])
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
                it.rig.change(&a, &["done", "60000", "the answer"])
            }),
            ("forget", Pass, |it| it.changes("u", &["forget"])),
        ],
        _ => &[],
    }
}

/// Runs the operation on a scene of its own while the memory is full; says what is wrong with it.
fn runs(
    server: &RedisServer,
    case: Case,
    holder: Holder,
    operation: &Operation,
    room: bool,
) -> Option<String> {
    let (what, must, run) = operation;
    let name = format!("{}-{holder:?}-{}", what.replace(' ', "-"), u8::from(room));
    let told = format!("{} {:?}, {holder:?} holder: {what}", case.kind, case.inside);
    let mut scene = Scene::set(server, case, &name, holder, room);
    let _inboxes = ["b", "c", "n"].map(|who| scene.rig.inbox(server, who));
    let before = scene.rig.everything();
    scene.rig.full(true);
    let outcome = run(&mut scene);
    // One whose lease is over asks as a newcomer does.
    let newcomer = holder == Holder::Lapsed && OF_A_HOLDER.contains(what);
    let wrong = match &outcome {
        Ok(_) => None,
        Err(error) if *must == Pass && !newcomer => Some(format!("{told}: {error}")),
        Err(error) if !error.to_string().contains("OOM") && !error.to_string().contains("maxmemory") => {
            Some(format!("{told}: it is refused by {error}"))
        }
        Err(_) if scene.rig.everything() != before => Some(format!("{told}: it is refused, half-written")),
        Err(_) => None,
    };
    // A release hands the lock on, and a caller that finds it free is let in.
    let frees = what.starts_with("an unlock") || (holder == Holder::Lapsed && *what == "a heartbeat");
    let nobody = ["latch", "barrier"].contains(&case.kind);
    let left_over = wrong.is_none() && frees && !nobody && !scene.is_inside("b");
    scene.rig.full(false);
    let _: () = cmd("FLUSHALL").query(&mut scene.rig.con).unwrap();
    wrong.or(left_over.then(|| format!("{told}: a waiter is not let in")))
}

#[test]
fn with_the_memory_full_what_keeps_or_ends_something_passes_and_the_rest_leaves_no_trace() {
    let server = server_that_fills();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for case in CASES {
        for holder in [Holder::Young, Holder::Renewed, Holder::Lapsed] {
            let scripts = redis_concurrent_testkit::scripts(case.rule).unwrap();
            let mut operations: Vec<(&Operation, bool)> = OF_ALL.iter().map(|it| (it, false)).collect();
            if case.kind != "latch" {
                operations.extend(OF_HOLDS.iter().map(|it| (it, false)));
            }
            if scripts.adopt.is_some() {
                operations.extend(OF_RECEIPTS.iter().map(|it| (it, false)));
            }
            operations.extend(changes_of(case.kind).iter().map(|it| (it, false)));
            if case.rooms {
                operations.extend(OF_CONDITIONS.iter().map(|it| (it, true)));
            }
            for (operation, room) in operations {
                tried += 1;
                wrong.extend(runs(&server, case, holder, operation, room));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {tried}: {wrong:#?}", wrong.len());
}
