//! The engine's threads, in orders of steps that no machine would produce by itself: at each mutex, condvar,
//! atomic, channel and request, shuttle's schedulers decide which thread runs next.
//!
//! The engine is the real one, from [`acquire`](super::acquire) to the bytes on a connection. Redis is the
//! one in memory that runs the deployed scripts (`server.rs`), and time passes when a scenario
//! says so (`src/sync.rs`, `src/engine/redis/wire.rs`). shuttle treats every atomic as sequentially
//! consistent and has no spurious wake-ups, so defects that depend on those are not seen here.
//!
//! `make shuttle` runs it. `SCHEDULES=<n>` sets the number of schedules, over all scenarios together;
//! `SEED=<n>` repeats the run that printed the seed; `REPLAY=<text>` runs the single schedule that a failure
//! printed, of the test named by `TEST=<name>`.

mod condition;
mod connections;
mod fixture;
mod inbox;
mod linger;
mod lock_state;
mod read_write;
mod renewer;
mod semaphore;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::sync::time;

const SCHEDULES: u64 = 100_000;
/// How many times PCT preempts a thread that could continue: a few are enough for most defects, and the fewer
/// they are, the better it aims.
const DEPTH: usize = 3;

macro_rules! scenarios {
    ($($module:ident::$name:ident,)*) => {
        const SCENARIOS: u64 = [$(stringify!($name)),*].len() as u64;
        $(
            #[test]
            fn $name() {
                explore($module::$name);
            }
        )*
    };
}

scenarios! {
    lock_state::threads_of_two_processes_take_turns,
    lock_state::dropped_holds_do_not_wait_for_their_replies,
    lock_state::one_times_out_as_it_is_granted,
    lock_state::one_is_cancelled_as_it_is_granted,
    lock_state::a_wait_ends_while_the_lock_is_held,
    lock_state::one_gives_redis_up_as_it_is_handed_the_lock,
    lock_state::a_lease_ends_as_it_is_released,
    lock_state::a_grant_grows_old,
    lock_state::a_client_closes_while_its_threads_wait_and_hold,
    lock_state::a_client_closes_while_it_adopts,
    lock_state::requests_get_lost,
    connections::threads_share_a_connection,
    connections::requests_that_go_together_get_lost,
    connections::one_gives_up_in_the_queue_for_a_connection,
    inbox::a_gap_is_asked_about,
    inbox::a_gap_just_as_the_lock_is_granted,
    inbox::the_listener_cannot_connect_at_first,
    inbox::a_client_closes_while_its_listener_cannot_connect,
    inbox::a_client_is_dropped_while_its_listener_starts,
    linger::a_kept_lock_is_wanted_and_used,
    linger::two_keepers_take_it_in_turn,
    linger::its_time_is_up_as_it_is_used,
    renewer::it_ends_only_when_nothing_is_left,
    renewer::clients_come_and_go,
    renewer::nothing_is_planned_for_a_hold_that_has_ended,
    renewer::a_release_that_got_lost_is_repeated,
    read_write::readers_and_writers_take_turns,
    read_write::a_writer_gives_up_as_it_is_granted,
    read_write::readers_want_what_a_writer_keeps,
    read_write::a_word_to_readers_gets_lost,
    semaphore::one_and_both_permits_take_turns,
    semaphore::one_gives_up_before_another_that_asks_for_more,
    condition::each_signal_wakes_one,
    condition::all_are_signalled,
    condition::a_wait_times_out_as_it_is_signalled,
    condition::a_gap_as_they_are_signalled,
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs a scenario in this test's share of all schedules.
fn explore(scenario: fn()) {
    if let Some(schedule) = variable::<String>("REPLAY") {
        run("replay", ReplayScheduler::new_from_encoded(&schedule), scenario);
        return;
    }
    let schedules = variable("SCHEDULES").unwrap_or(SCHEDULES).div_ceil(SCENARIOS) as usize;
    let seed = variable("SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.map_or(1, |now| now.as_secs())
    });
    println!("SEED={seed}");
    run("random", RandomScheduler::new_from_seed(seed, schedules.div_ceil(2)), scenario);
    run("PCT", PctScheduler::new_from_seed(seed, DEPTH, schedules.div_ceil(2)), scenario);
}

fn run(name: &'static str, scheduler: impl Scheduler + 'static, scenario: fn()) {
    let mut config = Config::new();
    // Lua runs on the stack of the thread whose request it is.
    config.stack_size = 1024 * 1024;
    config.failure_persistence = FailurePersistence::Print;
    config.max_steps = MaxSteps::FailAfter(100_000);
    config.silence_warnings = true;
    let begun = Arc::new(AtomicU64::new(0));
    let _tally = Tally { name, begun: begun.clone(), since: Instant::now() };
    Runner::new(scheduler, config).run(move || {
        begun.fetch_add(1, Ordering::Relaxed);
        scenario();
        time::wait_for_others();
    });
}

/// Prints how many schedules there were, whether or not the last one failed.
struct Tally {
    name: &'static str,
    begun: Arc<AtomicU64>,
    since: Instant,
}

impl Drop for Tally {
    fn drop(&mut self) {
        let begun = self.begun.load(Ordering::Relaxed);
        println!("{}: {begun} schedules in {:.1?}", self.name, self.since.elapsed());
    }
}
