//! No lock: all customers read the stock before any of them has written what is left.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use redis::Commands;

use super::fixture::Fixture;
use super::{Failure, Finding};

const STOCK: u64 = 10;
const CUSTOMERS: usize = 12;

#[derive(Debug, PartialEq, Eq)]
pub struct Sale {
    pub sold: u64,
    pub left: u64,
}

impl Finding for Sale {
    fn is_kept(&self) -> bool {
        self.sold + self.left == STOCK
    }
}

impl fmt::Display for Sale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {STOCK} sold, {} said to be left", self.sold, self.left)
    }
}

/// All customers read, then all write.
pub fn wrong(fixture: &Fixture) -> Result<Sale, Failure> {
    let mut customers = fixture.processes::<CUSTOMERS>()?;
    customers[0].set::<_, _, ()>("stock", STOCK)?;
    let seen: Vec<u64> = customers.iter_mut().map(|it| it.get("stock")).collect::<Result<_, _>>()?;
    let mut sold = 0;
    for (customer, seen) in customers.iter_mut().zip(seen) {
        if seen > 0 {
            customer.set::<_, _, ()>("stock", seen - 1)?;
            sold += 1;
        }
    }
    Ok(Sale { sold, left: customers[0].get("stock")? })
}

/// Every customer reads and writes under the lock.
pub fn right(fixture: &Fixture) -> Result<Sale, Failure> {
    let [mut redis] = fixture.processes()?;
    redis.set::<_, _, ()>("stock", STOCK)?;
    let sold = AtomicU64::new(0);
    thread::scope(|scope| {
        let customers: Vec<_> = fixture
            .clients::<CUSTOMERS>()?
            .into_iter()
            .map(|client| {
                let sold = &sold;
                scope.spawn(move || -> Result<(), Failure> {
                    let [mut redis] = fixture.processes()?;
                    let lock = client.reentrant_lock("stock");
                    let guard = lock.lock()?;
                    let seen: u64 = redis.get("stock")?;
                    if seen > 0 {
                        redis.set::<_, _, ()>("stock", seen - 1)?;
                        sold.fetch_add(1, SeqCst);
                    }
                    Ok(guard.unlock()?)
                })
            })
            .collect();
        customers.into_iter().try_for_each(|it| it.join().expect("a customer does not panic"))
    })?;
    Ok(Sale { sold: sold.load(SeqCst), left: redis.get("stock")? })
}
