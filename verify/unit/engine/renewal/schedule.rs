//! Unit tests of `src/engine/renewal/schedule.rs`.

use super::*;
use crate::Client;

/// A renewal that is planned again, put back or passed to a line takes the place of what was planned before.
#[test]
fn one_look_is_planned_at_a_grant() {
    const OWNER: u64 = 7;
    let client = Client::builder().url("redis://127.0.0.1:1").connect_later().unwrap();
    let lock = client.simple_lock("it");
    let entry = lock.entry().unwrap();
    let renewer = &entry.shared.renewer;
    let now = Moment::now();
    let [early, late, later] = [600, 1200, 1800].map(|secs| now.after(Duration::from_secs(secs)));
    let looks = || {
        let state = renewer.state.lock();
        let mine = state.schedule.keys().filter(|(_, client, _)| *client == entry.shared.id);
        mine.map(|(at, ..)| *at).collect::<Vec<_>>()
    };
    let end = |at| Task::new(entry.clone(), OWNER, TaskKind::End, at, at);
    let mut core = entry.core.lock();
    for due in [early, late] {
        renewer.plan(entry, &mut core, OWNER, now, due).unwrap();
        assert_eq!(looks(), [core.due(OWNER).unwrap()]);
    }
    let first = core.due(OWNER).unwrap();
    assert!(renewer.move_look(&mut core, &end(first), late, late));
    assert_eq!(looks(), [late]);
    assert!(!renewer.move_look(&mut core, &end(first), later, later), "another look was planned meanwhile");
    assert_eq!(looks(), [late]);
    assert!(core.ends(entry, OWNER));
    assert!(!renewer.move_look(&mut core, &end(late), later, later), "the grant is over");
    assert!(looks().is_empty());
}

/// A grant has not ended before its lease is over, whatever else is due.
#[test]
fn an_end_does_not_come_early_with_others() {
    let client = Client::builder().url("redis://127.0.0.1:1").connect_later().unwrap();
    let lock = client.simple_lock("it");
    let entry = lock.entry().unwrap();
    let mut state = State::default();
    let line = ServerLine { renew_every: Duration::from_secs(3600), ..ServerLine::default() };
    state.lines.insert(entry.server().id, line);
    let now = Moment::now();
    let soon = now.after(Duration::from_millis(100));
    for (owner, what, at) in [(1, TaskKind::Grant, now), (2, TaskKind::End, soon)] {
        state.insert(Task::new(entry.clone(), owner, what, at, at));
    }
    let owners = |tasks: Vec<Task>| tasks.into_iter().map(|task| task.owner).collect::<Vec<_>>();
    assert_eq!(owners(state.take_due(now)), [1]);
    assert_eq!(owners(state.take_due(soon)), [2]);
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
