//! Unlocking what another process may hold by now. A's lease expires while A works, B acquires the lock, A
//! unlocks, and C tries the lock while B works.

use redis::Commands;

use super::Failure;
use super::bare::take;
use super::fixture::{Fixture, LONG, key};
use super::holders::Holders;

pub fn wrong_by_del(fixture: &Fixture) -> Result<Holders, Failure> {
    wrong(fixture, false)
}

/// Here A first checks whether it holds the lock. It did when it checked.
pub fn wrong_by_get_then_del(fixture: &Fixture) -> Result<Holders, Failure> {
    wrong(fixture, true)
}

fn wrong(fixture: &Fixture, looks: bool) -> Result<Holders, Failure> {
    let [mut a, mut b, mut c] = fixture.processes()?;
    let a_had_it = take(&mut a, "lock", "A", LONG)?;
    let deletes = a_had_it && (!looks || a.get::<_, String>("lock")? == "A");
    fixture.lease_ends("lock")?;
    let b_works = take(&mut b, "lock", "B", LONG)?;
    if deletes {
        a.del::<_, ()>("lock")?;
    }
    let c_works = take(&mut c, "lock", "C", LONG)?;
    Ok(Holders::new([b_works, c_works].into_iter().filter(|it| *it).count()))
}

pub fn right_unlooked(fixture: &Fixture) -> Result<Holders, Failure> {
    right(fixture, false)
}

/// A checks whether it has lost the lock before its lease expires: as above, that does not help.
pub fn right_looked(fixture: &Fixture) -> Result<Holders, Failure> {
    right(fixture, true)
}

/// Checking the owner and freeing the lock is a single step in Redis: a process can free only its own hold.
fn right(fixture: &Fixture, looks: bool) -> Result<Holders, Failure> {
    let [a, b, c] = fixture.clients()?.map(|it| it.simple_lock("lock"));
    let held = a.lock_owned()?;
    if looks && held.is_lost() {
        return Err("lost too soon".into());
    }
    fixture.lease_ends(&key("lock"))?;
    let b_works = b.try_lock_owned()?;
    let error = held.unlock().err().map(|why| why.kind());
    let c_works = c.try_lock_owned()?;
    Ok(Holders { at_once: [b_works, c_works].iter().flatten().count(), error })
}
