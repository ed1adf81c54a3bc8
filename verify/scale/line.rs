//! What a client sends to keep its holds, as the renewal thread and its lines do.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Moment;

/// As in the schedule: how many renewals are sent in one write, by what fraction of its period one may be
/// early to be sent with others, and how many may be in flight.
const BATCH: usize = 64;
const EARLY: u32 = 256;
const MOST: usize = 64 * BATCH;

#[derive(Default)]
pub(super) struct Line {
    planned: BTreeSet<(Moment, u64)>,
    /// When the client will check it next, if that is planned.
    looks_at: Option<Moment>,
    in_flight: usize,
    /// When a reply last arrived.
    last_reply: u64,
    used: bool,
}

impl Line {
    /// Returns whether the client must check it then, and would not.
    pub(super) fn plan(&mut self, due: Moment, owner: u64) -> bool {
        self.planned.insert((due, owner));
        let earlier = self.looks_at.is_none_or(|at| due < at);
        if earlier {
            self.looks_at = Some(due);
        }
        earlier
    }

    pub(super) fn forget(&mut self, due: Moment, owner: u64) {
        self.planned.remove(&(due, owner));
    }

    /// Returns what is sent in one write now, if anything is due.
    pub(super) fn take_due(&mut self, now: Moment, renew_every: Duration) -> Option<Vec<u64>> {
        if self.in_flight >= MOST || self.planned.first()?.0 > now {
            return None;
        }
        let until = now.after(renew_every / EARLY);
        let mut owners = Vec::new();
        while owners.len() < BATCH
            && let Some((due, owner)) = self.planned.first().copied().filter(|(due, _)| *due <= until)
        {
            self.planned.remove(&(due, owner));
            owners.push(owner);
        }
        Some(owners)
    }

    pub(super) fn sends(&mut self, requests: usize) {
        self.used |= requests > 0;
        self.in_flight += requests;
    }

    /// Returns when the client checks it next.
    pub(super) fn next(&mut self) -> Option<Moment> {
        // With too many in flight, at the next reply.
        let next = self.planned.first().filter(|_| self.in_flight < MOST).map(|(due, _)| *due);
        self.looks_at = next;
        next
    }

    /// Records a reply, and returns whether it came in time: while replies arrive, those behind them are on
    /// their way.
    pub(super) fn hears(&mut self, sent: u64, now: u64, timeout: Duration) -> bool {
        self.in_flight -= 1;
        let in_time =
            now - sent.max(self.last_reply) <= u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.last_reply = now;
        in_time
    }

    /// Returns whether too many were in flight and no longer are, in which case the client checks it at once.
    pub(super) fn goes_on(&mut self, now: Moment) -> bool {
        let goes_on = self.looks_at.is_none() && self.in_flight < MOST && !self.planned.is_empty();
        if goes_on {
            self.looks_at = Some(now);
        }
        goes_on
    }

    pub(super) fn was_used(&self) -> bool {
        self.used
    }
}
