//! What goes wrong in a run, and when: drawn from its seed.

use std::time::Duration;

use crate::engine::random::Rng;

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// All connections to a server break, with what they carry.
    Cut,
    /// Those of one process do.
    CutOf(usize),
    /// For so long, each message takes up to so much longer.
    Slow(Duration, Duration),
    /// For so long, those to subscribers do.
    Late(Duration, Duration),
    /// For so long, nothing goes between a process and a server; it arrives afterwards, later by up to as long.
    Apart(usize, Duration),
    /// For so long, a process hears nothing of a server, which goes on to hear it.
    Unheard(usize, Duration),
    /// For so long, each message to a subscriber arrives twice, and sometimes much later the second time.
    Doubles(Duration),
    /// For so long, no message to a subscriber arrives.
    Mute(Duration),
    /// The scripts are forgotten.
    Forgets,
    /// For so long, the memory is full.
    Full(Duration),
    /// The server restarts with its data, and takes so long.
    Restart(Duration),
    /// All threads of a process stop for so long.
    Stops(usize, Duration),
    /// A process is killed.
    Dies(usize),
    /// The server restarts without its data.
    Empty(Duration),
    /// Another server takes its address, which has been up for long, and has no data.
    Replaced(Duration),
    /// A replica takes over, which lacks the last writes.
    Failover(Duration),
    /// A slot that it has moves to another node, and takes so long.
    Moves(Duration),
    /// A node dies, and after so long its replica, which lacks the writes of the last so long, takes over at its own
    /// address.
    Promoted(Duration, Duration),
    /// A node is cut off from the others, but not from its clients, until its replica takes over after so long.
    Isolated(Duration),
    /// Its clock is set by so many µs.
    Clock(i64),
}

/// When, on which server, what.
pub(super) type Planned = (Duration, usize, Fault);

/// How much later the second copy of a message arrives at most.
pub(super) const DOUBLED: Duration = Duration::from_secs(5);
/// How long after a fault of the network or of a server its calls are well again.
const RECOVERED: Duration = Duration::from_secs(6);
/// How much later at most arrives what was sent between two that were apart: it is sent again at growing intervals.
pub(super) const RESENT: Duration = Duration::from_secs(8);
/// How long it takes at least, and at most, until a replica takes over.
const SWIFT: Duration = Duration::from_millis(200);
const SLOW: Duration = Duration::from_secs(6);
/// How many faults a run has at most.
pub(super) const MOST: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) faults: Vec<Planned>,
}

/// How much may go wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// Nothing.
    Calm,
    /// Processes stop and die; network and server are well.
    Deadly,
    /// What loses no writes.
    Rough,
    /// What may lose writes or let them expire early: one owner at a time is promised by several servers only.
    Lossy,
}

impl Plan {
    pub(super) fn new(
        rng: &mut Rng,
        weather: Weather,
        only: &[&'static str],
        (processes, servers, cluster): (usize, usize, bool),
        within: usize,
        without: &[usize],
    ) -> Plan {
        let several = servers > 1 && !cluster;
        let mut kinds =
            if only.is_empty() { Fault::kinds(rng, weather, several, cluster) } else { only.to_vec() };
        if cluster && weather == Weather::Rough {
            // In half of the cases.
            kinds.extend(vec!["moves"; kinds.len()]);
        }
        let most = if kinds.is_empty() { 0 } else { 1 + rng.below(MOST) };
        let (mut faults, mut last) = (Vec::new(), (Duration::ZERO, 0));
        for i in 0..most {
            let (at, server) = (Duration::from_millis(500 + rng.below(within) as u64), rng.below(servers));
            let kind = kinds[rng.below(kinds.len())];
            let fault = Fault::draw(rng, kind, processes, several);
            // Most servers at about the same time.
            let again = weather == Weather::Lossy && several && i % 2 == 1;
            last = if again { (last.0 + at / 64, (last.1 + 1) % servers) } else { (at, server) };
            if !without.contains(&i) {
                faults.push((last.0, last.1, fault));
            }
        }
        Plan { faults }
    }

    /// Only those stop or die that are neither the first process nor the last; and who stops, does so for longer than a
    /// signal waits for it.
    pub(super) fn stops_waiters(&mut self, processes: usize) {
        for (.., fault) in &mut self.faults {
            if let Fault::Stops(it, _) | Fault::Dies(it) = fault {
                *it = 1 + *it % (processes - 2);
            }
            if let Fault::Stops(_, lasts) = fault {
                *lasts += RECOVERED * 3;
            }
        }
    }

    /// Where messages are lost or late, or nothing goes from a process to a server or back, this lasts so long.
    pub(super) fn lasts(&mut self, least: Duration, most: Duration) {
        for (.., fault) in &mut self.faults {
            if let Fault::Mute(lasts)
            | Fault::Apart(_, lasts)
            | Fault::Unheard(_, lasts)
            | Fault::Slow(lasts, _) = fault
            {
                *lasts = (*lasts).clamp(least, most);
            }
        }
    }

    pub(super) fn fails_over(&self) -> bool {
        self.faults.iter().any(|(.., fault)| matches!(fault, Fault::Failover(_)))
    }

    /// Whether replicas take over.
    pub(super) fn has_replicas(&self) -> bool {
        let promotes = |fault: &Fault| matches!(fault, Fault::Promoted(..) | Fault::Isolated(_));
        self.fails_over() || self.faults.iter().any(|(.., fault)| promotes(fault))
    }

    /// Whether this process stops, or is killed.
    pub(super) fn stops(&self, process: usize) -> bool {
        self.stops_at(process).next().is_some()
    }

    /// When this process stops, and when it is killed.
    pub(super) fn stops_at(&self, process: usize) -> impl Iterator<Item = Duration> {
        let stops = move |(at, _, fault): &Planned| {
            matches!(fault, Fault::Stops(it, _) | Fault::Dies(it) if *it == process).then_some(*at)
        };
        self.faults.iter().filter_map(stops)
    }

    /// When processes stop, and go on.
    pub(super) fn all_stops(&self) -> impl Iterator<Item = (Duration, Duration)> {
        self.stops_if(|_| true)
    }

    /// When this process stops, and goes on.
    pub(super) fn stops_of(&self, process: usize) -> impl Iterator<Item = (Duration, Duration)> {
        self.stops_if(move |it| it == process)
    }

    fn stops_if(&self, of: impl Fn(usize) -> bool) -> impl Iterator<Item = (Duration, Duration)> {
        self.faults.iter().filter_map(move |(at, _, fault)| match fault {
            Fault::Stops(it, lasts) if of(*it) => Some((*at, *at + *lasts)),
            _ => None,
        })
    }

    pub(super) fn kills(&self) -> bool {
        self.faults.iter().any(|(.., fault)| matches!(fault, Fault::Dies(_)))
    }

    /// When all of it is over, and all messages have arrived.
    pub(super) fn settled(&self) -> Duration {
        self.faults.iter().map(Plan::ends).max().unwrap_or_default() + Duration::from_secs(1)
    }

    fn ends(planned: &Planned) -> Duration {
        let (at, _, fault) = planned;
        match fault {
            Fault::Apart(_, lasts) | Fault::Unheard(_, lasts) => *at + *lasts + RESENT.min(*lasts),
            Fault::Full(lasts) | Fault::Restart(lasts) | Fault::Mute(lasts) => *at + *lasts,
            Fault::Slow(lasts, by) | Fault::Late(lasts, by) => *at + *lasts + *by,
            Fault::Doubles(lasts) => *at + *lasts + DOUBLED,
            Fault::Empty(lasts) | Fault::Replaced(lasts) => *at + *lasts,
            Fault::Moves(lasts) | Fault::Promoted(_, lasts) | Fault::Isolated(lasts) => *at + *lasts * 2,
            _ => *at,
        }
    }

    /// When all of it is over that began before then.
    pub(super) fn over(&self, then: Duration) -> Duration {
        self.faults.iter().filter(|(at, ..)| *at < then).map(Plan::ends).max().unwrap_or_default()
    }

    /// Whether a process is never apart for a lease: for so long it tries to take back what it asked for.
    pub(super) fn settles(&self, process: usize, lease: Duration) -> bool {
        let apart = |(.., fault): &Planned| match fault {
            Fault::Apart(it, lasts) | Fault::Unheard(it, lasts) if *it == process => {
                *lasts + RESENT.min(*lasts)
            }
            _ => Duration::ZERO,
        };
        self.faults.iter().map(apart).sum::<Duration>() + RECOVERED / 3 < lease
    }

    /// When a request arrives at the latest that is sent then.
    pub(super) fn arrives(&self, then: Duration) -> Duration {
        let late = |it: &&Planned| it.0 < then && matches!(it.2, Fault::Slow(..) | Fault::Apart(..));
        self.faults.iter().filter(late).map(Plan::ends).max().unwrap_or_default().max(then)
    }

    /// Until when, of what began before then, a waiter may be held up by more than those ahead of it: by a lease of who
    /// stops or dies, and by what a call may take to recover from anything else.
    pub(super) fn disturbed(&self, then: Duration, lease: Duration) -> Duration {
        let ends = |planned: &Planned| match planned.2 {
            Fault::Stops(_, lasts) => planned.0 + lasts.max(lease),
            Fault::Dies(_) => planned.0 + lease,
            Fault::Mute(_) | Fault::Late(..) | Fault::Doubles(_) | Fault::Forgets => Plan::ends(planned),
            _ => Plan::ends(planned) + RECOVERED,
        };
        self.faults.iter().filter(|(at, ..)| *at < then).map(ends).max().unwrap_or_default()
    }

    /// How many processes that stop or die may have to be passed by between these times.
    pub(super) fn skipped(&self, from: Duration, until: Duration) -> u32 {
        let silent = |(at, _, fault): &&Planned| match fault {
            Fault::Stops(_, lasts) => *at < until && from < *at + *lasts + RECOVERED,
            Fault::Dies(_) => *at < until,
            _ => false,
        };
        self.faults.iter().filter(silent).count() as u32
    }

    /// How many processes stop or die, and may have to be passed by, between these times.
    pub(super) fn passed_by(&self, from: Duration, until: Duration) -> u32 {
        let silent = |(at, _, fault): &&Planned| match fault {
            Fault::Stops(_, lasts) => *at < until && from < *at + *lasts + RECOVERED,
            Fault::Dies(_) => *at < until && from < *at + RECOVERED,
            _ => false,
        };
        self.faults.iter().filter(silent).count() as u32
    }

    /// When this process is killed.
    pub(super) fn death(&self, process: usize) -> Option<Duration> {
        let dies =
            |(at, _, fault): &Planned| matches!(fault, Fault::Dies(it) if *it == process).then_some(*at);
        self.faults.iter().filter_map(dies).min()
    }
}

/// What may go wrong in each weather.
const DEADLY: &[&str] = &["stops", "dies"];
const ROUGH: &[&str] = &[
    "cut",
    "cut of one",
    "slow",
    "slow",
    "slow",
    "late",
    "apart",
    "unheard",
    "unheard",
    "doubles",
    "mute",
    "mute",
    "forgets",
    "full",
    "restart",
    "stops",
    "dies",
];
const LOSSY: &[&str] = &["empty", "replaced", "clock", "failover"];
/// The same of a cluster.
const LOSSY_OF_A_CLUSTER: &[&str] = &["promoted", "isolated"];
/// What RedLock promises even then: no server may be set forward, as it would forget what it granted.
const LOSSY_OF_SEVERAL: &[&str] = &["empty", "replaced", "clock"];

impl Fault {
    /// What may go wrong in one run: little of it in half of the runs, so that it comes often.
    fn kinds(rng: &mut Rng, weather: Weather, several: bool, cluster: bool) -> Vec<&'static str> {
        let of = |rng: &mut Rng, all: &[&'static str]| -> Vec<&'static str> {
            let some = [1, 1, 2, all.len()][rng.below(4)];
            (0..some).map(|i| if some < all.len() { all[rng.below(all.len())] } else { all[i] }).collect()
        };
        match weather {
            Weather::Calm => Vec::new(),
            Weather::Deadly => DEADLY.to_vec(),
            Weather::Rough => of(rng, ROUGH),
            Weather::Lossy => {
                let lossy = match (several, cluster) {
                    (true, _) => of(rng, LOSSY_OF_SEVERAL),
                    (_, true) => of(rng, LOSSY_OF_A_CLUSTER),
                    _ => of(rng, LOSSY),
                };
                let rough = if rng.below(2) == 0 { of(rng, ROUGH) } else { Vec::new() };
                [lossy, rough].concat()
            }
        }
    }

    fn draw(rng: &mut Rng, kind: &'static str, processes: usize, several: bool) -> Fault {
        let process = rng.below(processes);
        let lasts = Duration::from_millis(
            10 + [rng.below(500), rng.below(5_000), rng.below(40_000)][rng.below(3)] as u64,
        );
        // Up to more than what a call waits for, and than most leases.
        let by = [rng.below(50), rng.below(4_000), rng.below(15_000), rng.below(15_000)][rng.below(4)];
        let by = Duration::from_millis(1 + by as u64);
        let soon = Duration::from_millis(rng.below(1_000) as u64);
        match kind {
            "cut" => Fault::Cut,
            "cut of one" => Fault::CutOf(process),
            "slow" => Fault::Slow(lasts, by),
            "late" => Fault::Late(lasts, by),
            "apart" => Fault::Apart(process, lasts),
            "unheard" => Fault::Unheard(process, lasts),
            "doubles" => Fault::Doubles(lasts),
            "mute" => Fault::Mute(lasts),
            "forgets" => Fault::Forgets,
            "full" => Fault::Full(lasts),
            "restart" => Fault::Restart(lasts.min(Duration::from_secs(5))),
            "dies" if processes > 1 => Fault::Dies(process),
            "stops" | "dies" => Fault::Stops(process, lasts),
            "empty" => Fault::Empty(soon),
            "moves" => Fault::Moves(lasts.min(Duration::from_secs(3))),
            "replaced" => Fault::Replaced(soon),
            "clock" if several => Fault::Clock(-(rng.below(20_000_000) as i64)),
            "clock" => Fault::Clock((rng.below(40_000_000) as i64) - 20_000_000),
            "failover" => Fault::Failover(soon * 2),
            "promoted" => Fault::Promoted(soon, lasts.clamp(SWIFT, SLOW)),
            "isolated" => Fault::Isolated(lasts.clamp(SWIFT, SLOW)),
            _ => unreachable!("{kind}"),
        }
    }

    /// Its name, without its numbers.
    pub(super) fn name(&self) -> String {
        format!("{self:?}").split('(').next().unwrap_or_default().to_owned()
    }
}
