//! The faults of a run, all from one seed.

use std::time::Duration;

use crate::history::faults::ARMED;
use crate::support::{Random, ms};

/// What the locks of a run are called. The first is reentrant, the second simple.
pub const LOCKS: [&str; 3] = ["a", "b", "c"];
pub const PROCESSES: usize = 3;
pub const THREADS: u64 = 4;

/// The clients' settings: short, so that much happens in a short run.
pub const LEASE: Duration = ms(900);
pub const WAITER_TIMEOUT: Duration = ms(450);
pub const COMMAND: Duration = ms(450);

/// Faults come in storms; between them it is calm for long enough to see what goes on without.
const STORM: Duration = ms(7000);
const CALM: Duration = ms(5000);

/// Which process a fault is for.
#[derive(Clone, Copy, Debug)]
pub enum Victim {
    Slot(usize),
    /// The one that holds this lock; if that cannot be told, the one in this slot.
    Holder(&'static str, usize),
}

/// A fault of a process.
#[derive(Clone, Copy, Debug)]
pub enum Blow {
    /// SIGKILL; another one is started in its place.
    Kill(Victim),
    /// SIGSTOP, and SIGCONT after this time: longer than a lease.
    Stop(Victim, Duration),
}

/// A fault of the server, or of the way to it.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// CLIENT KILL of all that send commands, or of all that listen.
    KillClients {
        listeners: bool,
    },
    FlushScripts,
    /// Without saying goodbye, or in good order; down for this time at least.
    Restart {
        crash: bool,
        down: Duration,
    },
    /// SIGSTOP of the server for this time.
    Freeze(Duration),
    Silence(usize),
    SwallowRepliesAndReset(usize),
    ResetBeforeRequests(usize),
    CutProxy,
    /// All replies through the proxy come later by the first, for the second.
    Delay(Duration, Duration),
    /// Requests are held back for this time, and reach the server then.
    HoldBack(Duration),
    BlackHole(Duration),
}

/// When, counted from the beginning of the run, and what.
#[derive(Debug)]
pub struct Plan {
    /// Which of [`LOCKS`] are reentrant.
    pub reentrant: [bool; 3],
    pub blows: Vec<(Duration, Blow)>,
    pub troubles: Vec<(Duration, Trouble)>,
}

impl Plan {
    pub fn of(random: &mut Random, length: Duration) -> Self {
        Plan {
            reentrant: [true, false, random.below(2) == 0],
            blows: deal(random, length, (50, 500), Blow::deck, Blow::lasts),
            troubles: deal(random, length, (50, 500), Trouble::deck, Trouble::lasts),
        }
    }
}

impl Blow {
    fn deck(random: &mut Random) -> Vec<Self> {
        let slot = |random: &mut Random| random.below(PROCESSES as u64) as usize;
        let anyone = |random: &mut Random| Victim::Slot(slot(random));
        let holder = |random: &mut Random| Victim::Holder(LOCKS[random.below(3) as usize], slot(random));
        let stop = |random: &mut Random| LEASE + random.micros(1_000_000);
        vec![
            Blow::Kill(anyone(random)),
            Blow::Kill(holder(random)),
            Blow::Kill(holder(random)),
            Blow::Kill(holder(random)),
            Blow::Stop(anyone(random), stop(random)),
            Blow::Stop(holder(random), stop(random)),
        ]
    }

    fn lasts(self) -> Duration {
        match self {
            Blow::Kill(_) => Duration::ZERO,
            Blow::Stop(_, time) => time,
        }
    }
}

impl Trouble {
    fn deck(random: &mut Random) -> Vec<Self> {
        let some = |random: &mut Random| 1 + random.below(4) as usize;
        vec![
            Trouble::KillClients { listeners: false },
            Trouble::KillClients { listeners: true },
            Trouble::FlushScripts,
            Trouble::Restart { crash: true, down: random.micros(500_000) },
            Trouble::Restart { crash: false, down: random.micros(500_000) },
            Trouble::Freeze(random.micros(1_200_000)),
            Trouble::Silence(some(random)),
            Trouble::SwallowRepliesAndReset(some(random)),
            Trouble::ResetBeforeRequests(some(random)),
            Trouble::CutProxy,
            Trouble::Delay(random.micros(400_000), ms(300) + random.micros(1_000_000)),
            Trouble::HoldBack(random.micros(1_500_000)),
            Trouble::BlackHole(random.micros(1_000_000)),
        ]
    }

    fn lasts(self) -> Duration {
        match self {
            Trouble::Restart { down: time, .. }
            | Trouble::Freeze(time)
            | Trouble::Delay(_, time)
            | Trouble::HoldBack(time)
            | Trouble::BlackHole(time) => time,
            Trouble::Silence(_) | Trouble::SwallowRepliesAndReset(_) | Trouble::ResetBeforeRequests(_) => {
                ARMED
            }
            _ => Duration::ZERO,
        }
    }
}

/// Deals decks of faults, one after the other, with pauses of so many milliseconds, into the storms
/// of the run. From decks, so that a short run has a bit of everything.
fn deal<T: Copy>(
    random: &mut Random,
    length: Duration,
    pause: (u64, u64),
    deck: fn(&mut Random) -> Vec<T>,
    lasts: fn(T) -> Duration,
) -> Vec<(Duration, T)> {
    let (mut dealt, mut rest, mut at) = (Vec::new(), Vec::new(), ms(500));
    loop {
        if rest.is_empty() {
            rest = deck(random);
        }
        let fault = rest.swap_remove(random.below(rest.len() as u64) as usize);
        let storms = at.as_micros() / (STORM + CALM).as_micros();
        let begin = (STORM + CALM) * storms as u32;
        if at + lasts(fault) > begin + STORM {
            at = begin + STORM + CALM + random.micros(300_000);
        }
        if at + lasts(fault) >= length {
            return dealt;
        }
        dealt.push((at, fault));
        at += lasts(fault) + ms(pause.0) + random.micros((pause.1 - pause.0) * 1000);
    }
}

#[test]
fn one_seed_one_plan() {
    let plan = |seed| format!("{:?}", Plan::of(&mut Random::of(seed), ms(60_000)));
    assert_eq!(plan(1), plan(1));
    assert_ne!(plan(1), plan(2));
}
