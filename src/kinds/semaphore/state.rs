//! The state of a semaphore, as its rule describes it.

use std::collections::HashMap;

use redis::Value;

use crate::engine::operations::inspect::{HeldRow, Inspection};
use crate::engine::redis::resp::{number, text};
use crate::lock::holder::Holder;

/// The state, as the rule describes it.
pub(super) struct State {
    pub(super) permits: Option<i64>,
    used: i64,
    shares: Vec<Share>,
}

/// The permits of one owner.
struct Share {
    owner: String,
    permits: u32,
    number: u64,
}

/// A number of permits; 0 if it is negative.
pub(super) fn natural(n: i64) -> u32 {
    u32::try_from(n.max(0)).unwrap_or(u32::MAX)
}

impl State {
    pub(super) fn free(&self) -> i64 {
        self.permits.unwrap_or(0) - self.used
    }

    /// The holders, each with its permits.
    pub(super) fn holders(self, held: Vec<HeldRow>) -> Vec<Holder> {
        let shares = self.shares.into_iter();
        let shares: HashMap<String, Share> = shares.map(|share| (share.owner.clone(), share)).collect();
        let holder = |held: HeldRow| {
            let share = shares.get(&held.owner);
            let (permits, number) = share.map_or((None, 0), |share| (Some(share.permits), share.number));
            Holder { permits, ..Holder::new(held, number) }
        };
        held.into_iter().map(holder).collect()
    }

    pub(super) fn of(inspection: &Inspection) -> State {
        let state = &inspection.state;
        let share = |chunk: &[Value]| {
            let (owner, permits) = (text(chunk.first())?, natural(number(chunk.get(1))?));
            Some(Share { owner, permits, number: number(chunk.get(2))?.try_into().ok()? })
        };
        State {
            permits: number(state.first()),
            used: number(state.get(1)).unwrap_or(0),
            shares: state.get(2..).unwrap_or_default().chunks(3).filter_map(share).collect(),
        }
    }
}
