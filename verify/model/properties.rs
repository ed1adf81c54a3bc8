//! What must hold in every state.

use std::time::Duration;

use stateright::{Model, Property};

use super::actions::Step;
use super::lock_states::{READS, WRITES};
use super::modes::OtherMode;
use super::state::{Caller, Faults, Process, State, Thread, process_of};
use super::{PATIENCE, TICK, World};
use crate::clock::Moment;
use crate::engine::small_redis::Message;
use crate::engine::small_redis::Mode;
use crate::engine::state::grant::Grant;
use crate::engine::state::lock_state::LockState;

/// More steps than any run without faults takes.
const MOST_STEPS: usize = 2_000;

pub(super) fn all() -> Vec<Property<World>> {
    vec![
        Property::always("one owner", |world: &World, s: &State| {
            world.permits > 0 || s.flushed || nobody_beside_a_writer(s)
        }),
        Property::always("never more permits are out than there are", |world: &World, s| {
            permits_out(s) <= world.permits
        }),
        Property::always("what is valid here is held in Redis", |_, s: &State| {
            s.flushed || is_held_in_redis(s)
        }),
        Property::always("a process that is not told keeps nothing", |_, s| !keeps_unheard(s)),
        Property::always("nobody waits for what nobody holds", |world: &World, s: &State| {
            world.faults.lost + world.faults.breaks + world.faults.moves > 0
                || !s.quiet()
                || !waits_for_nobody(s)
        }),
        Property::always("no process passes its own release", |world: &World, s: &State| {
            world.faults.lost > 0 || !s.passed
        }),
        Property::always("tokens rise", |_, s: &State| !s.fell),
        Property::always("parks are bounded", |_, s| parks_are_bounded(s)),
        Property::always("no live waiter is stuck", |world, s| !is_still(s) || ends_well(world, s)),
        Property::always("nobody waits for the dead", |world: &World, s: &State| {
            !world.prompt || !s.quiet() || is_due(s) || !could_be_in(s)
        }),
        Property::always("a dead waiter costs no lease", |_, s: &State| !s.trusted),
        Property::always("a waiter that comes back comes back to its position", |_, s: &State| !s.fell_back),
        Property::always("nothing is left behind", |world, s| !is_over(s) || is_clean(world, s)),
        Property::always("no more wait than may", |world: &World, s: &State| {
            let one_each = world.threads == 1 && world.faults.lost == 0;
            !one_each || world.max_waiters.is_none_or(|most| s.redis.waiting().count() <= most)
        }),
        Property::always("nobody jumps the queue", |_, s: &State| !s.jumped),
        Property::always("a downgrade that was done is done", |_, s: &State| !s.robbed),
        Property::always("local hand-off ends", |_, s: &State| !s.overstayed),
        Property::always("bounded bypass", |_, s: &State| !s.bypassed),
        Property::always("a wait returns with the lock", |_, s: &State| !s.empty_handed),
        Property::always("a signal is never lost", |_, s: &State| !s.signals.lost),
        Property::always("no signal dies with its receiver", |world: &World, s: &State| {
            !world.has_conditions() || !s.quiet() || is_due(s) || !is_owed(s)
        }),
        Property::always("signals go to the longest waiter", |_, s: &State| !s.signals.out_of_turn),
        Property::always("a signalled waiter says so", |_, s: &State| !s.signals.swallowed),
    ]
}

/// Whether a thread has a hold on this lock state that its process considers valid. In the middle of a
/// downgrade, or after one has failed, the thread no longer writes.
fn has_valid(p: &Process, caller: &Caller, g: u8, now: Moment) -> bool {
    if g == WRITES && matches!(caller.other_mode, OtherMode::Instead | OtherMode::Failed) {
        return false;
    }
    let holds = |ticket| p.lock_states[g].holds_valid(ticket, now);
    let of = |lock_state: u8, ticket| lock_state == g && holds(ticket);
    use Thread::{AskingAhead, Holding, Signalling};
    matches!(
        caller.thread,
        Holding(ticket) | AskingAhead(ticket, _) | Signalling(ticket, _) if of(caller.lock_state, ticket)
    ) || caller.kept.is_some_and(|(lock_state, ticket)| of(lock_state, ticket))
}

/// Whether a writer has the lock alone, except for its own read lock.
fn nobody_beside_a_writer(state: &State) -> bool {
    let now = state.now();
    let callers = || state.live().flat_map(|p| p.callers.iter().map(move |caller| (p, caller)));
    let has = |g: u8| callers().filter(move |(p, caller)| has_valid(p, caller, g, now));
    match has(WRITES).count() {
        0 => true,
        1 => !has(READS).any(|(p, caller)| !has_valid(p, caller, WRITES, now)),
        _ => false,
    }
}

/// Returns how many permits all processes together believe they have.
fn permits_out(state: &State) -> u8 {
    let now = state.now();
    let grants = state
        .live()
        .flat_map(|p| p.lock_states.owners().into_iter().filter_map(|o| p.lock_states[WRITES].grant(o)));
    grants.filter(|t| t.loss(now).is_none()).map(|t| Mode::of(&t.terms.args).permits()).sum()
}

/// Whether each grant that a process considers valid is in Redis, under its number and for at least as long,
/// or else what replaced it, of which this process has not heard yet.
fn is_held_in_redis(state: &State) -> bool {
    let now = state.now();
    let held = |t: &Grant| {
        state.redis.holder(t.owner).is_some_and(|holder| {
            let end = Moment::default().after(Duration::from_millis(holder.end));
            holder.number == t.number && t.validity.until <= end
        })
    };
    let exchanged = |p: &Process, t: &Grant| {
        state.redis.holders().iter().any(|holder| holder.instead == Some(t.owner))
            || p.callers.iter().any(|caller| has_ended(caller) && *t.terms.args == *"write")
    };
    state.live().all(|p| {
        let grants = p
            .lock_states
            .iter()
            .flat_map(|lock_state| lock_state.owners().into_iter().filter_map(|o| lock_state.grant(o)));
        grants.filter(|t| t.loss(now).is_none()).all(|t| held(t) || exchanged(p, t))
    })
}

/// Whether the write lock of a downgrading caller has ended, whatever became of the downgrade.
fn has_ended(caller: &Caller) -> bool {
    let done = matches!(caller.thread, Thread::LeavingQueue(_, None) | Thread::Holding(_));
    caller.other_mode == OtherMode::Failed || (caller.other_mode == OtherMode::Instead && done)
}

/// Whether every parked thread looks again within a heartbeat.
fn parks_are_bounded(state: &State) -> bool {
    let latest = state.now().after(TICK);
    state.live().flat_map(|p| &p.callers).all(|caller| match caller.thread {
        Thread::Parked(_, until) => until <= latest,
        _ => true,
    })
}

/// Whether nothing is in flight while a thread is parked, and none is awake.
fn is_still(state: &State) -> bool {
    let any = |which: fn(&Thread) -> bool| state.live().flat_map(|p| &p.callers).any(|s| which(&s.thread));
    state.quiet() && any(|t| matches!(t, Thread::Parked(..))) && !any(|t| matches!(t, Thread::Awake(_)))
}

/// Whether a thread is about to take its turn.
pub(super) fn is_due(state: &State) -> bool {
    let now = state.now();
    let due = |thread: &Thread| match thread {
        Thread::Parked(_, until) => *until <= now,
        thread => matches!(thread, Thread::Awake(_)),
    };
    state.live().flat_map(|p| &p.callers).any(|caller| due(&caller.thread))
}

/// Whether another look at the queue would now admit a live waiter.
fn could_be_in(state: &State) -> bool {
    let mut redis = state.redis.clone();
    let mut received = false;
    let tell = |message: Message| received |= state.processes[process_of(message.owner)].alive;
    redis.look(state.millis(), &mut (|owner| state.listens(owner), tell));
    received
}

/// Whether a process has an idle grant.
fn keeps(process: &Process) -> bool {
    process.lock_states.iter().any(|lock_state| lock_state.idle().is_some())
}

/// Whether a process keeps a grant that no thread holds, although it would not hear that the lock is wanted.
fn keeps_unheard(state: &State) -> bool {
    state.live().any(|process| !process.inbox && keeps(process))
}

/// Whether a process keeps a grant that no thread holds while a live waiter has a queue position.
fn waits_for_nobody(state: &State) -> bool {
    state.live().any(keeps) && state.redis.waiting().any(|owner| state.processes[process_of(owner)].alive)
}

/// Whether all threads are out, nothing is in flight, and nothing is kept.
fn is_over(state: &State) -> bool {
    state.quiet()
        && !state.live().any(keeps)
        && state.live().flat_map(|p| &p.callers).all(|s| s.thread == Thread::Idle)
}

/// Whether a signal was taken along by a waiter that died.
fn is_owed(state: &State) -> bool {
    state.signals.are_owed(&state.redis, |owner| state.processes[process_of(owner)].alive)
}

fn is_clean(world: &World, state: &State) -> bool {
    let live = |owner: u64| state.processes[process_of(owner)].alive;
    let awaiting = &state.redis.awaiting;
    // Where positions can expire before they count as silent, it takes a signal to find that nobody is there.
    let listed = world.never_silent() && awaiting.members.values().any(|owner| live(*owner));
    state.live().all(|p| p.lock_states.iter().all(LockState::is_idle))
        && !listed
        && !state.redis.waiting().chain(awaiting.positions.keys().copied()).any(live)
        && !state.redis.holders().iter().any(|holder| live(holder.owner) && holder.end > state.millis())
}

/// Whether, with no more faults and no newcomers, every thread acquires and releases within `PATIENCE` ticks
/// and leaves nothing behind.
fn ends_well(world: &World, state: &State) -> bool {
    let mut state = state.clone();
    state.processes.iter_mut().flat_map(|p| &mut p.callers).for_each(|s| s.rounds = 0);
    run_out(world, state).is_some_and(|end| is_clean(world, &end))
}

/// Whether, without faults, everything that the model's threads want to do gets done.
pub(super) fn goes_through(world: &World) -> bool {
    run_out(world, world.beginning()).is_some_and(|end| is_clean(world, &end))
}

/// Returns how it ends once there are no more faults, if it does end. A wait for a signal that nobody will
/// send ends by its timeout, which comes when there is nothing else to do.
fn run_out(world: &World, state: State) -> Option<State> {
    let world = World { ticks: u8::MAX, ..world.clone() };
    let last = state.tick + PATIENCE;
    let mut state = State { left: Faults::default(), ..state };
    let mut steps = Vec::new();
    for _ in 0..MOST_STEPS {
        if is_over(&state) && state.live().flat_map(|p| &p.callers).all(|s| s.rounds == 0) {
            return Some(state);
        }
        world.actions(&state, &mut steps);
        // Where as many wait as may, a newcomer is turned away: it comes again after the others' steps.
        state = steps.drain(..).find_map(|step| match step {
            Step::Tick => waits_on(&world, &state, last),
            step => world.next_state(&state, step),
        })?;
    }
    None
}

/// Nothing else is to be done: time passes, unless a wait for a signal ends or the time is up.
fn waits_on(world: &World, state: &State, last: u8) -> Option<State> {
    if let Some((p, t)) = unsignalled(state) {
        let left = Faults { time_outs: 1, ..state.left.clone() };
        return world.next_state(&State { left, ..state.clone() }, Step::TimeOut(p, t));
    }
    world.next_state(state, Step::Tick).filter(|_| state.tick != last)
}

/// Returns a thread that has a position in a condition and has not timed out.
fn unsignalled(state: &State) -> Option<(u8, u8)> {
    let waits = |owner: &u64| state.redis.awaiting.positions.contains_key(owner);
    let (p, owner) = state.signals.waiting().filter(waits).find_map(|owner| {
        let p = process_of(owner);
        state.processes[p].alive.then_some((p, owner))
    })?;
    let lock_states = &state.processes[p].lock_states;
    let here = |g: &u8| lock_states.wait(*g).is_some_and(|wait| !wait.over && wait.lock_state.knows(owner));
    let wait = lock_states.numbers().find(here).and_then(|g| lock_states.wait(g))?;
    Some((p as u8, wait.thread))
}
