//! The library's performance goals, one for each row of the table.

use super::data::{Data, Pin};
use super::goal::{Goal, at_least, at_most};
use super::row::Row;

type Figure = fn(&Row) -> Option<f64>;
type Figures = Vec<Option<f64>>;

/// All goals, in the order of the table.
pub(crate) fn goals() -> Vec<Goal> {
    [alone(), lingering(), contended(), many(), beside()].into_iter().flatten().collect()
}

/// One process, uncontended.
fn alone() -> Vec<Goal> {
    vec![
        at_most("lock + unlock, simple ÷ the same two scripts on a bare socket", 1.10, |d, p| {
            pair(d, p, "simple", |r| r.ratio_floor)
        })
        .aim(1.06),
        at_most("… reentrant ÷ the same two scripts", 1.10, |d, p| {
            pair(d, p, "reentrant", |r| r.ratio_floor)
        })
        .aim(1.06),
        at_most("… simple ÷ the smallest scripted pair on a bare socket", 1.40, |d, p| {
            pair(d, p, "simple", |r| r.ratio_smallest)
        })
        .aim(1.20),
        at_most("… reentrant ÷ the smallest scripted pair", 1.40, |d, p| {
            pair(d, p, "reentrant", |r| r.ratio_smallest)
        })
        .aim(1.20),
        at_most("time inside Redis, simple ÷ that of the smallest scripted pair", 2.80, |d, p| {
            pair(d, p, "simple", |r| r.ratio_inside)
        })
        .aim(2.20),
        at_most("… reentrant ÷ that of the smallest scripted pair", 3.20, |d, p| {
            pair(d, p, "reentrant", |r| r.ratio_inside)
        })
        .aim(2.20),
        at_most("requests of lock + unlock, token included: simple, reentrant", 2.0, |d, p| {
            ["simple", "reentrant"].map(|kind| pair(d, p, kind, |r| r.commands_per_acquisition)).concat()
        })
        .aim(2.0),
        at_most("… PINGs among them", 0.0, |d, p| {
            ["simple", "reentrant"].map(|kind| pair(d, p, kind, |r| r.pings)).concat()
        })
        .unit("", 0),
        at_least("8 threads, 8 locks: pairs/s ÷ 8 bare sockets", 0.95, |d, p| threads(d, p, 8, None))
            .aim(1.20),
        at_least("… with one connection for all 8", 1.20, |d, p| threads(d, p, 8, Some(1))).only_pinned(),
        at_least("… 32 threads, 32 locks, 10 connections ÷ 32 bare sockets", 1.00, |d, p| {
            threads(d, p, 32, None)
        }),
        at_most("re-entry, lock + unlock: requests", 0.0, |d, p| {
            only(d, p, "reentry", |r| r.commands_per_acquisition)
        })
        .unit("", 0),
        at_most("… time", 300.0, |d, p| only(d, p, "reentry", |r| r.reentry_ns)).aim(100.0).unit(" ns", 0),
    ]
}

/// A lock that its process keeps.
fn lingering() -> Vec<Goal> {
    vec![
        at_most("a lock that lingers, lock + unlock: time", 200.0, |d, p| only(d, p, "linger", |r| r.pair_ns))
            .unit(" ns", 0),
        at_most("… requests", 0.01, |d, p| only(d, p, "linger", |r| r.requests_per_pair))
            .aim(0.001)
            .unit("", 4)
            .rounded(3),
        at_least("… 8 threads, 8 locks: pairs/s ÷ those without lingering", 10.0, |d, p| {
            only(d, p, "linger", |r| Some(r.eight_kept_per_s? / r.eight_plain_per_s?))
        })
        .unit("", 1),
        at_least(
            "… 2 processes, each with a lock that it takes 90, 99 times of 100: pairs/s ÷ those without lingering",
            2.0,
            |d, p| affine(d, p, [|r| r.affine_90_ratio, |r| r.affine_99_ratio]),
        )
        .unit("", 1),
        at_least("… with 90 µs of work between", 1.0, |d, p| {
            affine(d, p, [|r| r.affine_90_working_ratio, |r| r.affine_99_working_ratio])
        }),
        at_most("… another process's wait for it, p50 ÷ a hand-off", 1.30, |d, p| {
            only(d, p, "linger", |r| r.other_to_handover)
        }),
        at_most("… that wait ÷ the same scripts on bare sockets", 1.75, |d, p| {
            only(d, p, "linger", |r| Some(r.other_p50_us? / r.floor_other_p50_us?))
        }),
        at_most("… two clients that take it in turn: time ÷ that without lingering", 1.05, |d, p| {
            only(d, p, "linger", |r| r.pingpong_ratio)
        }),
    ]
}

/// Several processes that contend for one lock.
fn contended() -> Vec<Goal> {
    vec![
        at_most("requests an acquisition, `fair`, one thread in each of 2, 4, 16 processes", 2.05, |d, p| {
            fair(d, p, "processes", |r| r.commands_per_acquisition)
        }),
        // One request fewer per turn: the releasing thread requests the lock for the next thread in the same
        // request.
        at_most("… eight threads in each", 2.05, |d, p| {
            fair(d, p, "crowds", |r| r.commands_per_acquisition)
        })
        .aim(1.0)
        .rounded(1),
        at_least("acquisitions/s at 16 processes ÷ at 2, `fair`", 0.80, |d, p| {
            // Two fair processes are the first row of the part, which this ratio refers to.
            vec![d.row("processes", p, |r| r.fair && r.processes == 16).and_then(|r| r.ratio_to_first)]
        })
        .aim(0.90),
        at_least(
            "2 processes × 8 threads: acquisitions/s by the default local hand-off ÷ `fair`",
            6.0,
            |d, p| default_handoff(d, p, |r| r.ratio_to_first),
        )
        .aim(10.0)
        .unit("", 1),
        at_least("… Jain's index over the processes", 0.99, |d, p| {
            default_handoff(d, p, |r| r.jain_processes)
        })
        .unit("", 3),
        // 3(P − 1)T + 5 ms: two processes, a local hand-off period of one millisecond.
        at_most("… longest wait", 8.0, |d, p| default_handoff(d, p, |r| r.wait_us_max.map(|us| us / 1e3)))
            .unit(" ms", 1)
            .only_pinned(),
        at_most("hand-off between processes, p50 ÷ a round trip after the same pause", 3.50, |d, p| {
            only(d, p, "handoff", |r| r.ratio_round_trip)
        })
        .aim(2.50),
        at_most("… ÷ the same scripts on bare sockets", 1.40, |d, p| {
            only(d, p, "handoff", |r| r.ratio_floor)
        })
        .aim(1.20),
        at_most("… ÷ that of a list, by `RPUSH` and `BLPOP`", 1.30, |d, p| {
            only(d, p, "handoff", |r| r.ratio_list)
        }),
    ]
}

/// Many locks.
fn many() -> Vec<Goal> {
    vec![
        at_most("100,000 locks with leases of 30 s kept for 60 s: client CPU, of a core", 2.5, |d, p| {
            renewal(d, p, |r| r.client_cpu_percent)
        })
        .aim(1.3)
        .unit(" %", 2),
        at_most("… lapsed", 0.0, |d, p| renewal(d, p, |r| r.lapsed)).unit("", 0),
        at_most("… client memory a lock", 1024.0, |d, p| renewal(d, p, |r| r.rss_per_lock_bytes))
            .aim(512.0)
            .unit(" B", 0),
        at_most("… added to the p99 of another client's PING", 0.5, |d, p| {
            renewal(d, p, |r| r.ping_us_p99_added.map(|us| us / 1e3))
        })
        .aim(0.3)
        .unit(" ms", 3),
        // Flat: about a byte per name.
        at_most("1,000,000 names one after another: client memory grows by", 1024.0, |d, p| {
            names(d, p, |r| r.rss_growth_bytes.map(|b| b / 1024.0))
        })
        .unit(" KiB", 0),
        at_most("… keys left that never end", 0.0, |d, p| names(d, p, |r| r.keys_without_ttl)).unit("", 0),
    ]
}

/// Synchronizers that are not exclusive locks.
fn beside() -> Vec<Goal> {
    vec![
        at_most("reading only, 2 processes × 8 threads: requests a read", 0.01, |d, p| {
            reading(d, p, |r| r.commands_per_acquisition)
        })
        .unit("", 4),
        at_least("… reads/s ÷ those without local hand-off", 20.0, |d, p| {
            reading(d, p, |r| r.ratio_to_first)
        })
        .unit("", 0),
        at_least(
            "a writer among 12 readers who never pause, 60 ms each: in within 70 ms, of 50",
            0.98,
            |d, p| of(d, p, "readers", "writer", |r| r.within_70_ms),
        ),
        at_most("… longest wait", 150.0, |d, p| {
            of(d, p, "readers", "writer", |r| r.longest_wait_us.map(|us| us / 1e3))
        })
        .unit(" ms", 0),
        at_most("downgrade: until the last of 12 waiting readers is in, longest", 50.0, |d, p| {
            of(d, p, "readers", "downgrade", |r| r.longest_wait_us.map(|us| us / 1e3))
        })
        .unit(" ms", 1),
        at_most("two processes that signal each other: requests a signal and switch", 3.0, |d, p| {
            of(d, p, "signals", "signal", |r| r.commands_per_acquisition)
        }),
        at_most("… p50 ÷ a round trip", 5.0, |d, p| of(d, p, "signals", "signal", |r| r.ratio_round_trip))
            .aim(4.0),
        at_most("… ÷ the same scripts on bare sockets", 1.40, |d, p| {
            of(d, p, "signals", "signal", |r| r.ratio_floor)
        })
        .aim(1.20),
        at_most("semaphore of 10 permits, 16 processes: requests an acquisition", 2.05, |d, p| {
            only(d, p, "permits", |r| r.commands_per_acquisition)
        }),
        at_most(
            "inventory: a unit reserved and given back ÷ the same two scripts on a bare socket",
            1.10,
            |d, p| only(d, p, "stock", |r| r.ratio_floor),
        ),
        at_most("… requests", 2.0, |d, p| only(d, p, "stock", |r| r.commands_per_acquisition)),
        at_most("32 processes at a latch: until the last is on its way, longest", 100.0, |d, p| {
            of(d, p, "starts", "latch", |r| r.longest_wait_us.map(|us| us / 1e3))
        })
        .unit(" ms", 1),
        at_most("… requests of each", 2.0, |d, p| {
            of(d, p, "starts", "latch", |r| r.commands_per_acquisition)
        }),
        at_most("32 processes at a barrier: until the last is on its way, longest", 100.0, |d, p| {
            of(d, p, "starts", "barrier", |r| r.longest_wait_us.map(|us| us / 1e3))
        })
        .unit(" ms", 1),
        at_most("… requests of each", 2.0, |d, p| {
            of(d, p, "starts", "barrier", |r| r.commands_per_acquisition)
        }),
        at_most("a limiter's decision, fixed window and smooth: requests", 1.0, |d, p| {
            limiter(d, p, |r| r.commands_per_acquisition)
        }),
        at_most("… ÷ the same script on a bare socket", 1.10, |d, p| limiter(d, p, |r| r.ratio_floor)),
        at_most("ten names of one client as one lock: requests of lock + unlock", 2.0, |d, p| {
            multi(d, p, "of one client")
        }),
        at_most("… of ten clients", 20.0, |d, p| multi(d, p, "of ten clients")).unit("", 0),
        at_most(
            "RedLock over 5 servers, lock + unlock ÷ the same scripts on 5 bare sockets",
            1.25,
            |d, p| only(d, p, "redlock", |r| r.ratio_floor),
        ),
        at_most("… with 2 of them stopped ÷ with all well", 1.20, |d, p| {
            only(d, p, "redlock", |r| r.ratio_stopped)
        }),
    ]
}

/// With the default local hand-off, compared with none.
fn reading(data: &Data, pin: Pin, figure: Figure) -> Figures {
    vec![data.row("reading", pin, |r| r.local_handoff_us.is_none()).and_then(figure)]
}

fn of(data: &Data, pin: Pin, part: &str, workload: &str, figure: Figure) -> Figures {
    vec![data.row(part, pin, |r| r.workload == workload).and_then(figure)]
}

fn multi(data: &Data, pin: Pin, kind: &str) -> Figures {
    vec![data.row("multi", pin, |r| r.kind == kind).and_then(|r| r.commands_per_acquisition)]
}

fn pair(data: &Data, pin: Pin, kind: &str, figure: Figure) -> Figures {
    vec![data.row("pair", pin, |r| r.kind == kind).and_then(figure)]
}

fn limiter(data: &Data, pin: Pin, figure: Figure) -> Figures {
    ["fixed window", "smooth"]
        .map(|kind| data.row("limiter", pin, |r| r.kind == kind).and_then(figure))
        .to_vec()
}

/// The figure of a part that has one row.
fn only(data: &Data, pin: Pin, part: &str, figure: Figure) -> Figures {
    vec![data.row(part, pin, |_| true).and_then(figure)]
}

/// The figure of several threads with a lock each.
fn threads(data: &Data, pin: Pin, threads: usize, connections: Option<u32>) -> Figures {
    let row = data.row("threads", pin, |r| r.threads == threads && r.connections == connections);
    vec![row.and_then(|r| r.ratio_floor)]
}

fn affine(data: &Data, pin: Pin, figures: [Figure; 2]) -> Figures {
    figures.map(|figure| only(data, pin, "linger", figure)).concat()
}

fn fair(data: &Data, pin: Pin, part: &str, figure: Figure) -> Figures {
    [2, 4, 16].map(|n| data.row(part, pin, |r| r.fair && r.processes == n).and_then(figure)).to_vec()
}

fn default_handoff(data: &Data, pin: Pin, figure: Figure) -> Figures {
    vec![data.row("local-handoff", pin, |r| !r.fair && r.local_handoff_us.is_none()).and_then(figure)]
}

/// Only from a run with as many locks, and as long, as the row of the table says.
fn renewal(data: &Data, pin: Pin, figure: Figure) -> Figures {
    let like = |r: &Row| r.locks == Some(100_000) && r.lease_ms == Some(30_000) && r.seconds >= 60.0;
    vec![data.row("renewal", pin, like).and_then(figure)]
}

/// Only from a run with as many names as the row of the table says.
fn names(data: &Data, pin: Pin, figure: Figure) -> Figures {
    vec![data.row("names", pin, |r| r.names == Some(1_000_000)).and_then(figure)]
}
