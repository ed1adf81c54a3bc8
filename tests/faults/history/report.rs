//! What a run came to, in a few lines.

use std::collections::BTreeMap;

use crate::history::checker::{Evidence, longest_unexplained};
use crate::history::log::Event;

pub fn summary(seed: u64, evidence: &Evidence) -> String {
    let history = &evidence.history;
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    for shadow in &evidence.shadows {
        *faults.entry(&shadow.what).or_default() += 1;
    }
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for wait in &history.waits {
        *ends.entry(wait.how.split(' ').next().unwrap_or_default()).or_default() += 1;
    }
    let lines = |is: fn(&Event) -> bool| history.lines.iter().filter(|line| is(&line.event)).count();
    let handed = history.holds.iter().filter(|hold| hold.token & 0xfff > 0).count();
    let longest = history.waits.iter().map(|wait| wait.ended - wait.called).max().unwrap_or(0);
    format!(
        "SEED={seed}: {} holds, {handed} of them handed off; {} lost; {} unlocks unknown or to be done later\n  \
         waits: {}; longest {} ms, unexplained at most {} ms\n  \
         counts: {} accepted, {} refused\n  faults: {}",
        history.holds.len(),
        lines(|event| matches!(event, Event::Lost { .. })),
        lines(|event| matches!(event, Event::Released { how } if how.starts_with("Un"))),
        listed(&ends),
        longest / 1000,
        longest_unexplained(evidence) / 1000,
        evidence.tallies.iter().map(|tally| tally.writes.len()).sum::<usize>(),
        lines(|event| matches!(event, Event::Refused { .. })),
        listed(&faults),
    )
}

fn listed(counts: &BTreeMap<&str, usize>) -> String {
    counts.iter().map(|(what, n)| format!("{what} {n}")).collect::<Vec<_>>().join(", ")
}
