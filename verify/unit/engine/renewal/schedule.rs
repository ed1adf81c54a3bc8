//! Unit tests of `src/engine/renewal/schedule.rs`.

use super::*;
use crate::Client;

const SERVER: u64 = 1;
const OWNER: u64 = 7;

/// Hands a renewal that was due at `at` to the line, for a grant that ends at `until`.
fn hand_over(state: &mut State, entry: &Arc<LockEntry>, at: Moment, until: Moment) {
    let task = Task { until, ..Task::new(entry.clone(), OWNER, TaskKind::Grant, at, at) };
    assert!(state.hand_over(task, SERVER).is_none());
}

#[test]
fn an_end_is_reported_while_one_of_its_renewals_is_in_a_lines_hands() {
    let client = Client::builder().url("redis://127.0.0.1:1").connect_later().unwrap();
    let lock = client.simple_lock("it");
    let entry = lock.entry().unwrap();
    let mut state = State::default();
    state.lines.insert(SERVER, ServerLine { client: entry.shared.id, ..ServerLine::default() });
    let [first, second, until] = [1, 2, 9].map(|secs| Moment::now().after(Duration::from_secs(secs)));
    let in_hands = |state: &mut State| {
        for at in [first, second] {
            hand_over(state, entry, at, until);
        }
        std::mem::take(&mut state.lines.get_mut(&SERVER).unwrap().queue)
    };

    let tasks = in_hands(&mut state);
    for task in &tasks {
        assert_eq!(state.next(), Some(until));
        state.settle(task);
    }
    assert_eq!(state.next(), None);

    let tasks = in_hands(&mut state);
    let ended: Vec<u64> = state.take_ended(until).into_iter().map(|(owner, _)| owner).collect();
    assert_eq!(ended, [OWNER], "once");
    tasks.iter().for_each(|task| state.settle(task));
    assert_eq!(state.next(), None);
}

/// The first one is due, the others soon.
#[test]
fn a_renewal_goes_early_with_others_by_a_part_of_its_own_clients_period_only() {
    let client = || Client::builder().url("redis://127.0.0.1:1").connect_later().unwrap();
    let (hourly, brisk) = (client(), client());
    let locks = [&hourly, &brisk].map(|client| client.simple_lock("it"));
    let [slow, quick] = locks.each_ref().map(|lock| lock.entry().unwrap());
    let mut state = State::default();
    for (entry, period) in [(slow, Duration::from_secs(3600)), (quick, Duration::from_millis(200))] {
        state.lines.insert(
            entry.server().id,
            ServerLine { client: entry.shared.id, renew_every: period, ..ServerLine::default() },
        );
    }
    let now = Moment::now();
    let mut plan = |entry: &Arc<LockEntry>, owner, ms| {
        let at = now.after(Duration::from_millis(ms));
        state.insert(Task::new(entry.clone(), owner, TaskKind::Grant, at, at));
    };
    for (entry, owner, ms) in [(slow, 1, 0), (slow, 2, 100), (quick, 3, 150), (slow, 4, 160)] {
        plan(entry, owner, ms);
    }
    let owners = |tasks: Vec<Task>| tasks.into_iter().map(|task| task.owner).collect::<Vec<_>>();
    assert_eq!(owners(state.take_due(now)), [1, 2]);
    assert!(owners(state.take_due(now)).is_empty());
    assert_eq!(owners(state.take_due(now.after(Duration::from_millis(150)))), [3, 4]);
}
