//! EXISTS, then SET: two processes look before either has set the key.

use redis::Commands;

use super::Failure;
use super::fixture::{Fixture, LONG};
use super::holders::Holders;

pub fn wrong(fixture: &Fixture) -> Result<Holders, Failure> {
    let mut both = fixture.processes::<2>()?;
    let mut free = [false; 2];
    for (process, free) in both.iter_mut().zip(&mut free) {
        *free = !process.exists::<_, bool>("lock")?;
    }
    let mut holders = 0;
    for (process, _) in both.iter_mut().zip(free).filter(|(_, free)| *free) {
        process.set_ex::<_, _, ()>("lock", "taken", LONG.as_secs())?;
        holders += 1;
    }
    Ok(Holders::new(holders))
}

/// Looking and acquiring are a single step here, so that no other process can come in between.
pub fn right(fixture: &Fixture) -> Result<Holders, Failure> {
    let both = fixture.clients::<2>()?.map(|it| it.simple_lock("lock"));
    let held: Vec<_> = both.iter().map(|it| it.try_lock_owned()).collect::<Result<_, _>>()?;
    Ok(Holders::new(held.iter().flatten().count()))
}
