//! Chooses what happens next in a walk.

use stateright::Model;

use super::Walk;
use crate::engine::model::actions::Step;
use crate::engine::model::state::{Packet, process_of};
use crate::engine::small_redis::{Op, Stage};

impl Walk<'_> {
    pub(super) fn choose(&mut self) -> Option<Step> {
        if self.world.has_conditions() { self.with_conditions() } else { self.plainly() }
    }

    /// Chooses the next step for a lock without conditions.
    fn plainly(&mut self) -> Option<Step> {
        if !self.requests.is_empty() && self.rng.percent(5) {
            let op = self.requests[self.rng.below(self.requests.len())].clone();
            return Some(Step::Run(Packet { process: 0, thread: None, op, sent: 0, resent: false }));
        }
        let mut steps = Vec::new();
        self.world.actions(&self.state, &mut steps);
        let ticks = steps.pop_if(|step| *step == Step::Tick);
        if self.rng.percent(1) {
            self.asleep = 3 + self.rng.below(7);
        }
        if self.asleep > 0 || self.rng.percent(4) {
            self.asleep = self.asleep.saturating_sub(1);
            return ticks;
        }
        let plain = |step: &Step| {
            use Step::{Deliver, Enter, Hear, Renew, Run, Timer, Turn, Unlock};
            use Step::{Downgrade, KeptLongEnough, ReadToo, Replace, UnlockFirst};
            matches!(
                step,
                Enter(..) | Turn(..) | Timer(..) | Unlock(..) | Renew(..) | Run(_) | Hear(..) | Deliver(_)
            ) || matches!(step, Downgrade(..) | ReadToo(..) | Replace(..) | UnlockFirst(..))
                || matches!(step, KeptLongEnough(..))
        };
        if self.rng.percent(75) && steps.iter().any(plain) {
            steps.retain(plain);
        }
        if steps.is_empty() {
            return ticks;
        }
        let i = self.rng.below(steps.len());
        Some(steps.swap_remove(i))
    }

    /// Chooses the next step for a lock with conditions.
    fn with_conditions(&mut self) -> Option<Step> {
        let op = match self.rng.below(100) {
            0..5 if !self.requests.is_empty() => {
                Some(self.requests[self.rng.below(self.requests.len())].clone())
            }
            5..8 => self.quit_of_the_holder(),
            _ => None,
        };
        if let Some(op) = op {
            return Some(Step::Run(Packet { process: 0, thread: None, op, sent: 0, resent: false }));
        }
        let first = self.requests.len() < self.scene;
        let mut steps = Vec::new();
        self.world.actions(&self.state, &mut steps);
        let ticks = steps.pop_if(|step| *step == Step::Tick);
        if self.rng.percent(1) && !first {
            self.asleep = 2 + self.rng.below(5);
        }
        if self.asleep > 0 || self.rng.percent(if first { 1 } else { 4 }) {
            self.asleep = self.asleep.saturating_sub(1);
            return ticks;
        }
        let rare =
            |step: &Step| matches!(step, Step::Break(_) | Step::Crash(_) | Step::Despair(..) | Step::Mend(_));
        let trouble = |step: &Step| {
            use Step::{Fail, LoseMessage, LoseReply, Overtake, Repeat, TimeOut};
            matches!(step, Fail(_) | LoseMessage(_) | LoseReply(_) | Overtake(_) | Repeat(_) | TimeOut(..))
        };
        match self.rng.below(100) {
            _ if first => {
                steps.retain(|step| !trouble(step));
                self.set_scene(&mut steps);
            }
            0..10 if steps.iter().any(trouble) => steps.retain(trouble),
            10..14 if steps.iter().any(rare) => steps.retain(rare),
            _ if steps.iter().all(|step| rare(step) || trouble(step)) => {}
            _ => steps.retain(|step| !rare(step) && !trouble(step)),
        }
        if steps.is_empty() {
            return ticks;
        }
        let i = self.rng.below(steps.len());
        Some(steps.swap_remove(i))
    }

    /// Returns the quit of a wait that was admitted and does not know it.
    fn quit_of_the_holder(&self) -> Option<Op> {
        let owner = self.state.redis.holders().first()?.owner;
        self.requests.iter().find_map(|op| match op {
            Op::Await { ask, condition, .. } if ask.owner == owner => {
                Some(Op::Quit { owner, condition: *condition, maybe_in_flight: true })
            }
            _ => None,
        })
    }

    /// Steers towards a scene that rarely occurs by chance: a waiter is signalled while another waits for the
    /// same condition, and cannot be admitted since its process does not listen.
    fn set_scene(&self, steps: &mut Vec<Step>) {
        let redis = &self.state.redis;
        let wait = |condition| redis.awaiting.positions.values().filter(|w| w.condition == condition).count();
        let signalled = redis.queue.values().find(|p| matches!(p.stage, Stage::Signalled(c) if wait(c) > 0));
        let deaf = signalled.map(|position| Step::Break(process_of(position.owner) as u8));
        if let Some(step) = deaf.filter(|step| steps.contains(step)) {
            return *steps = vec![step];
        }
        steps.retain(|step| match step {
            Step::Enter(p, t) => match self.world.plans[usize::from(*p)][usize::from(*t)] {
                "s" => self.world.condition(*t) == 0 && signalled.is_none() && wait(0) > 1,
                "w" => self.world.condition(*t) == 0 && wait(0) < 2,
                _ => false,
            },
            Step::Break(_) | Step::Crash(_) | Step::Despair(..) | Step::Mend(_) => false,
            _ => true,
        });
    }
}
