//! Every kind's operations after some of the lock's keys were deleted, or evicted: no script fails, and a waiter
//! has the lock or a whole queue position afterwards.

use redis::{Commands, cmd, pipe};
use redis_concurrent_testkit::RedisServer;

use crate::occupied::{CASES, Case, Holder, OccupiedLock, Operation, operations};
use crate::rig::{Ask, USUAL};

/// A key's name, its remaining time in ms, and its content.
type Saved = (String, i64, Vec<u8>);

fn saved(lock: &mut OccupiedLock) -> Vec<Saved> {
    let mut all = Vec::new();
    for key in lock.rig.keys.clone() {
        let (left, dump): (i64, Option<Vec<u8>>) =
            pipe().pttl(&key).cmd("DUMP").arg(&key).query(&mut lock.rig.con).unwrap();
        all.extend(dump.map(|dump| (key, left.max(0), dump)));
    }
    all
}

/// Leaves only these keys.
fn restore<'a>(lock: &mut OccupiedLock, these: impl Iterator<Item = &'a Saved>) {
    let mut all = pipe();
    all.cmd("FLUSHALL").ignore();
    for (key, left, dump) in these {
        all.cmd("RESTORE").arg(key).arg(left).arg(dump).ignore();
    }
    all.exec(&mut lock.rig.con).unwrap();
}

/// What `b` does after that, as its process would: it keeps its position, or takes one where it came.
fn b_goes_on(lock: &mut OccupiedLock) -> Result<(), String> {
    let (arrival, b) = (lock.arrival.clone(), lock.rig.b());
    let mut answer = Vec::new();
    for how in ["keep", "wait"] {
        answer =
            lock.asks(how, "b", Ask { arrival: &arrival, ..USUAL }).map_err(|e| format!("{how}: {e}"))?;
        if answer[0] != "-1" {
            break;
        }
    }
    let [queue, places] = [1, 2].map(|i| lock.rig.keys[i].clone());
    let ranks: bool = lock.rig.con.zscore::<_, _, Option<f64>>(queue, &b).unwrap().is_some();
    let placed: bool = lock.rig.con.hexists(places, &b).unwrap();
    let waits = answer[0] == "0";
    if waits && !(ranks && placed) {
        return Err(format!("{answer:?}, in the queue: {ranks}, with a position: {placed}"));
    }
    Ok(())
}

/// Runs the operation without each subset of the keys; says what is wrong.
fn runs(server: &RedisServer, case: Case, operation: &Operation) -> (usize, Vec<String>) {
    let (what, _, run) = operation;
    let mut lock = OccupiedLock::set(server, case, &what.replace(' ', "-"), Holder::Young, case.rooms);
    let _inboxes = ["b", "c", "n"].map(|who| lock.rig.inbox(server, who));
    // So that there are tombstones.
    lock.leaves("nobody", &["1"]).unwrap();
    let (keys, mut wrong) = (saved(&mut lock), Vec::new());
    for missing in 1..1_usize << keys.len() {
        let (gone, there): (Vec<_>, Vec<_>) = (0..keys.len()).partition(|i| missing >> i & 1 == 1);
        restore(&mut lock, there.iter().map(|i| &keys[*i]));
        let outcome = run(&mut lock).map_err(|e| e.to_string()).and_then(|_| b_goes_on(&mut lock));
        if let Err(error) = outcome {
            let gone: Vec<_> = gone.iter().map(|i| &keys[*i].0).collect();
            wrong.push(format!("{} {:?}: {what}, without {gone:?}: {error}", case.kind, case.inside));
        }
    }
    let _: () = cmd("FLUSHALL").query(&mut lock.rig.con).unwrap();
    ((1 << keys.len()) - 1, wrong)
}

#[test]
fn without_any_of_the_keys_no_script_fails_and_a_waiter_queues_again() {
    let server = RedisServer::builder().start().unwrap();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for case in CASES {
        for (operation, _) in operations(case) {
            let (n, those) = runs(&server, case, operation);
            tried += n;
            wrong.extend(those);
        }
    }
    assert!(wrong.is_empty(), "{} of {tried}: {wrong:#?}", wrong.len());
}
