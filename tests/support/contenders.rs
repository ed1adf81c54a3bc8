//! Clients that contend for one lock, and count how often two held it at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use redis_concurrent::{Client, ReentrantLock};

use crate::support::{LONG, SetOnDrop, ms};

/// Counts of the holds that the contenders had.
#[derive(Debug, Default)]
pub struct Contenders {
    /// How often each client acquired the lock.
    holds: Vec<AtomicU64>,
    inside: AtomicU64,
    highest: AtomicU64,
    double: AtomicU64,
    fallen: AtomicU64,
    over: AtomicBool,
}

impl Contenders {
    /// Lets one thread of each client acquire and release again and again while `during` runs.
    pub fn contend(clients: &[Client], during: impl FnOnce(&Contenders)) -> Contenders {
        let all =
            Contenders { holds: clients.iter().map(|_| AtomicU64::new(0)).collect(), ..Self::default() };
        thread::scope(|scope| {
            for (holds, client) in all.holds.iter().zip(clients) {
                let all = &all;
                scope.spawn(move || all.come_and_go(holds, &client.reentrant_lock("it")));
            }
            let _over = SetOnDrop(&all.over);
            during(&all);
        });
        all
    }

    fn come_and_go(&self, holds: &AtomicU64, lock: &ReentrantLock) {
        while !self.over.load(SeqCst) {
            // What was rejected during the failover is not a hold.
            let Ok(Some(guard)) = lock.try_lock_for(LONG) else { continue };
            let overlaps = self.inside.fetch_add(1, SeqCst) != 0;
            let fallen = self.highest.fetch_max(guard.token(), SeqCst) >= guard.token();
            thread::sleep(ms(5));
            self.inside.fetch_sub(1, SeqCst);
            if guard.is_lost() {
                continue;
            }
            holds.fetch_add(1, SeqCst);
            self.double.fetch_add(u64::from(overlaps), SeqCst);
            self.fallen.fetch_add(u64::from(fallen), SeqCst);
        }
    }

    /// Returns how often each client has acquired the lock.
    pub fn holds(&self) -> Vec<u64> {
        self.holds.iter().map(|n| n.load(SeqCst)).collect()
    }

    /// Returns how many holds overlapped another, and how many had a token no higher than an earlier one.
    pub fn double_and_fallen(&self) -> (u64, u64) {
        (self.double.load(SeqCst), self.fallen.load(SeqCst))
    }
}
