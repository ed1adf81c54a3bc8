//! What must hold in every state.

use std::time::Duration;

use stateright::{Model, Property};

use super::World;
use super::actions::Step;
use super::state::{Process, Seat, State, Thread};
use crate::clock::Moment;
use crate::engine::model::state::{Faults, process_of};
use crate::engine::model::{PATIENCE, TICK};

/// More than any run without faults takes.
const MOST_STEPS: usize = 2_000;

pub(super) fn all() -> Vec<Property<World>> {
    vec![
        Property::always("one owner", |_, s| valid_holders(s) <= 1),
        Property::always("what is valid here is held in Redis", |_, s| is_held_in_redis(s)),
        Property::always("tokens rise", |_, s: &State| !s.fell),
        Property::always("parks are bounded", |_, s| parks_are_bounded(s)),
        Property::always("no live waiter is stuck", |world, s| !is_still(s) || ends_well(world, s)),
        Property::always("nothing is left behind", |world, s| !is_over(s) || is_clean(world, s)),
        Property::always("nobody jumps the queue", |_, s: &State| !s.jumped),
        Property::always("a wait returns with the lock", |_, s: &State| !s.empty_handed),
        Property::always("a signal is never lost", |_, s: &State| !s.signals.lost),
        Property::always("no signal dies with who had it", |_, s: &State| {
            !s.quiet() || is_due(s) || !s.signals.are_owed(&s.redis, |o| s.processes[process_of(o)].alive)
        }),
        Property::always("signals go to who has waited longest", |_, s: &State| !s.signals.out_of_turn),
        Property::always("who was signalled says so", |_, s: &State| !s.signals.swallowed),
    ]
}

fn seats(state: &State) -> impl Iterator<Item = (&Process, &Seat)> {
    state.live().flat_map(|p| p.seats.iter().map(move |seat| (p, seat)))
}

/// Holds that their process believes valid.
fn valid_holders(state: &State) -> usize {
    let now = state.now();
    let valid = |(p, seat): &(&Process, &Seat)| match seat.thread {
        Thread::Holding(ticket) | Thread::Signalling(ticket, _) => p.lock_state.holds_valid(ticket, now),
        _ => false,
    };
    seats(state).filter(valid).count()
}

/// A tenure that a process believes valid is in Redis, under its number and for as long at least.
fn is_held_in_redis(state: &State) -> bool {
    let now = state.now();
    state.live().all(|p| {
        let grants = p.lock_state.owners().into_iter().filter_map(|o| p.lock_state.look(o));
        grants.filter(|t| t.loss(now).is_none()).all(|t| {
            state.redis.holder(t.owner).is_some_and(|holder| {
                let end = Moment::default().after(Duration::from_millis(holder.end));
                holder.number == t.number && t.valid_until <= end
            })
        })
    })
}

/// A sleeper looks again within a heartbeat.
fn parks_are_bounded(state: &State) -> bool {
    let latest = state.now().after(TICK);
    seats(state).all(|(_, seat)| match seat.thread {
        Thread::Parked(_, until) => until <= latest,
        _ => true,
    })
}

/// Nothing is on its way, and somebody sleeps.
fn is_still(state: &State) -> bool {
    let any = |which: fn(&Thread) -> bool| seats(state).any(|(_, seat)| which(&seat.thread));
    state.quiet() && any(|t| matches!(t, Thread::Parked(..))) && !any(|t| matches!(t, Thread::Awake(_)))
}

/// Somebody is about to take its turn.
fn is_due(state: &State) -> bool {
    seats(state).any(|(_, seat)| match seat.thread {
        Thread::Parked(_, until) => until <= state.now(),
        ref thread => matches!(thread, Thread::Awake(_)),
    })
}

/// All threads are out, and nothing is on its way.
fn is_over(state: &State) -> bool {
    state.quiet() && seats(state).all(|(_, seat)| seat.thread == Thread::Idle)
}

fn is_clean(world: &World, state: &State) -> bool {
    let live = |owner: u64| state.processes[process_of(owner)].alive;
    let redis = &state.redis;
    let held = redis.holders().iter().any(|holder| live(holder.owner) && holder.end > state.millis());
    let placed = redis.waiting().chain(redis.room.places.keys().copied()).any(live);
    // Where places lapse before they fall silent, a signal finds that nobody is there any more.
    let listed = world.never_silent() && redis.room.members.values().any(|owner| live(*owner));
    !held && !placed && !listed && state.live().all(|p| p.lock_state.is_idle())
}

/// With no more faults and no newcomers, everybody gets in and out again, in so many ticks, and
/// leaves nothing behind.
fn ends_well(world: &World, state: &State) -> bool {
    let mut state = state.clone();
    state.processes.iter_mut().flat_map(|p| &mut p.seats).for_each(|s| s.rounds = 0);
    run_out(world, state).is_some_and(|end| is_clean(world, &end))
}

/// Without faults, all that the model's threads want to do is done.
pub(super) fn goes_through(world: &World) -> bool {
    run_out(world, world.beginning()).is_some_and(|end| is_clean(world, &end))
}

/// How it ends when there are no more faults, if it does. A waiter for a signal that no one sends any more
/// waits until its time is over: that comes when there is nothing else to do.
fn run_out(world: &World, state: State) -> Option<State> {
    let world = World { ticks: u8::MAX, ..world.clone() };
    let last = state.tick + PATIENCE;
    let mut state = State { left: Faults::default(), ..state };
    let mut steps = Vec::new();
    for _ in 0..MOST_STEPS {
        if is_over(&state) && seats(&state).all(|(_, seat)| seat.rounds == 0) {
            return Some(state);
        }
        world.actions(&state, &mut steps);
        let mut step = steps.drain(..).next()?;
        if step == Step::Tick {
            if let Some((p, t)) = unsignalled(&state) {
                state.left.time_outs = 1;
                step = Step::TimeOut(p, t);
            } else if state.tick == last {
                return None;
            }
        }
        state = world.next_state(&state, step)?;
    }
    None
}

/// Somebody who has a place in a condition, and whose time is not over.
fn unsignalled(state: &State) -> Option<(u8, u8)> {
    let waits = |owner: &u64| state.redis.room.places.contains_key(owner);
    let (p, owner) = state.signals.waiting().filter(waits).find_map(|owner| {
        let p = process_of(owner);
        state.processes[p].alive.then_some((p, owner))
    })?;
    let here =
        |seat: &Seat| seat.stay.as_ref().is_some_and(|stay| !stay.over && stay.lock_state.knows(owner));
    let t = state.processes[p].seats.iter().position(here)?;
    Some((p as u8, t as u8))
}
