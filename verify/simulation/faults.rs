//! What goes wrong in a run, and when: drawn from its seed.

use std::time::Duration;

use crate::engine::call::backoff::Rng;

#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// All connections break, with what they carry.
    Cut,
    /// Those of one process do.
    CutOf(String),
    /// For so long, each message takes up to so much longer.
    Slow(Duration, Duration),
    /// For so long, nothing goes to or from a process; it arrives afterwards.
    Apart(String, Duration),
    /// The scripts are forgotten.
    Forgets,
    /// For so long, the memory is full.
    Full(Duration),
    /// The server restarts with its data, and takes so long.
    Restart(Duration),
    /// It restarts without.
    Empty(Duration),
    /// A replica takes over, which lacks the last writes.
    Failover(Duration),
    /// Its clock is set by so many µs.
    Clock(i64),
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) faults: Vec<(Duration, Fault)>,
}

/// How much may go wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// Nothing.
    Calm,
    /// What loses no writes.
    Rough,
    /// What may lose writes or let them expire early: one owner at a time is not promised.
    Lossy,
}

impl Plan {
    pub(super) fn new(rng: &mut Rng, weather: Weather, processes: usize, without: &[usize]) -> Plan {
        let most = if weather == Weather::Calm { 0 } else { 1 + rng.below(8) };
        let mut faults = Vec::new();
        for i in 0..most {
            let at = Duration::from_millis(rng.below(60_000) as u64);
            let fault = Fault::draw(rng, weather, processes);
            if !without.contains(&i) {
                faults.push((at, fault));
            }
        }
        Plan { faults }
    }

    pub(super) fn fails_over(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Failover(_)))
    }
}

impl Fault {
    fn draw(rng: &mut Rng, weather: Weather, processes: usize) -> Fault {
        let process = super::scene::host(rng.below(processes));
        let lasts = Duration::from_millis(
            10 + [rng.below(500), rng.below(5_000), rng.below(40_000)][rng.below(3)] as u64,
        );
        match rng.below(if weather == Weather::Lossy { 10 } else { 7 }) {
            0 => Fault::Cut,
            1 => Fault::CutOf(process),
            2 => Fault::Slow(
                lasts,
                Duration::from_millis(1 + [rng.below(50), rng.below(4_000)][rng.below(2)] as u64),
            ),
            3 => Fault::Apart(process, lasts),
            4 => Fault::Forgets,
            5 => Fault::Full(lasts),
            6 => Fault::Restart(lasts.min(Duration::from_secs(5))),
            7 => Fault::Empty(Duration::from_millis(rng.below(1_000) as u64)),
            8 => Fault::Failover(Duration::from_millis(rng.below(2_000) as u64)),
            _ => Fault::Clock((rng.below(40_000_000) as i64) - 20_000_000),
        }
    }
}
