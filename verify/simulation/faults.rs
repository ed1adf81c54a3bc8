//! What goes wrong in a run, and when: drawn from its seed.

use std::time::Duration;

use crate::engine::call::backoff::Rng;

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
    /// For so long, nothing goes between a process and a server; it arrives afterwards.
    Apart(usize, Duration),
    /// For so long, each message to a subscriber arrives twice.
    Doubles(Duration),
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
    /// A replica takes over, which lacks the last writes.
    Failover(Duration),
    /// Its clock is set by so many µs.
    Clock(i64),
}

/// When, on which server, what.
pub(super) type Planned = (Duration, usize, Fault);

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
        (processes, servers): (usize, usize),
        within: usize,
        without: &[usize],
    ) -> Plan {
        let most = if weather == Weather::Calm { 0 } else { 1 + rng.below(8) };
        let mut faults = Vec::new();
        for i in 0..most {
            let (at, server) = (Duration::from_millis(500 + rng.below(within) as u64), rng.below(servers));
            let fault = Fault::draw(rng, weather, processes, servers > 1);
            if !without.contains(&i) {
                faults.push((at, server, fault));
            }
        }
        Plan { faults }
    }

    pub(super) fn fails_over(&self) -> bool {
        self.faults.iter().any(|(.., fault)| matches!(fault, Fault::Failover(_)))
    }

    /// Whether this process stops, or is killed.
    pub(super) fn stops(&self, process: usize) -> bool {
        let stops =
            |(.., fault): &Planned| matches!(fault, Fault::Stops(it, _) | Fault::Dies(it) if *it == process);
        self.faults.iter().any(stops)
    }

    pub(super) fn kills(&self) -> bool {
        self.faults.iter().any(|(.., fault)| matches!(fault, Fault::Dies(_)))
    }

    /// When all of it is over, and all messages have arrived.
    pub(super) fn settled(&self) -> Duration {
        let ends = |(at, _, fault): &Planned| match fault {
            Fault::Apart(_, lasts) | Fault::Full(lasts) | Fault::Restart(lasts) => *at + *lasts,
            Fault::Slow(lasts, by) | Fault::Late(lasts, by) => *at + *lasts + *by,
            _ => *at,
        };
        self.faults.iter().map(ends).max().unwrap_or_default() + Duration::from_secs(1)
    }

    /// When this process is killed.
    pub(super) fn death(&self, process: usize) -> Option<Duration> {
        let dies =
            |(at, _, fault): &Planned| matches!(fault, Fault::Dies(it) if *it == process).then_some(*at);
        self.faults.iter().filter_map(dies).min()
    }
}

impl Fault {
    fn draw(rng: &mut Rng, weather: Weather, processes: usize, several: bool) -> Fault {
        let process = rng.below(processes);
        let lasts = Duration::from_millis(
            10 + [rng.below(500), rng.below(5_000), rng.below(40_000)][rng.below(3)] as u64,
        );
        let of = |rng: &mut Rng, last: usize, n: usize| last - rng.below(n);
        let which = match weather {
            Weather::Deadly => of(rng, 9, 2),
            Weather::Lossy if several => of(rng, 11, 12),
            // Half of them lose something.
            Weather::Lossy if rng.below(2) == 0 => of(rng, 12, 3),
            Weather::Lossy => of(rng, 12, 13),
            _ => of(rng, 9, 10),
        };
        match which {
            0 => Fault::Cut,
            1 => Fault::CutOf(process),
            2 => {
                let by = Duration::from_millis(1 + [rng.below(50), rng.below(4_000)][rng.below(2)] as u64);
                if rng.below(2) == 0 { Fault::Slow(lasts, by) } else { Fault::Late(lasts, by) }
            }
            3 => Fault::Apart(process, lasts),
            4 => Fault::Doubles(lasts),
            5 => Fault::Forgets,
            6 => Fault::Full(lasts),
            7 => Fault::Restart(lasts.min(Duration::from_secs(5))),
            8 if processes > 1 && rng.below(2) == 0 => Fault::Dies(process),
            8 | 9 => Fault::Stops(process, lasts),
            10 => Fault::Empty(Duration::from_millis(rng.below(1_000) as u64)),
            // No server of several may be set forward: it would forget what it granted.
            11 if several => Fault::Clock(-(rng.below(20_000_000) as i64)),
            11 => Fault::Clock((rng.below(40_000_000) as i64) - 20_000_000),
            _ => Fault::Failover(Duration::from_millis(rng.below(2_000) as u64)),
        }
    }
}
