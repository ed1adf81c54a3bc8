//! The inventory, by its client: what it counts, which callers it admits, what comes back, and what no kill can bring out
//! of step.

mod chance;
mod faults;
mod lock;
mod reserving;

use redis_concurrent::inventory::Stock;
use redis_concurrent::{Error, ErrorKind, Inventory};

/// The counts of `tee`: stocked, available, reserved, sold.
#[track_caller]
fn counts(inventory: &Inventory) -> [u64; 4] {
    balanced(inventory.stock("tee").unwrap())
}

/// Every unit is somewhere, and only there.
#[track_caller]
fn balanced(stock: Stock) -> [u64; 4] {
    let Stock { stocked, available, reserved, sold, .. } = stock;
    assert_eq!(stocked, available + reserved + sold, "{stock:?}");
    [stocked, available, reserved, sold]
}

#[track_caller]
fn fails_with<T>(outcome: Result<T, Error>, kind: ErrorKind, says: &str) {
    let Err(error) = outcome else { panic!("no error where {kind:?} was due: {says}") };
    assert_eq!((error.kind(), error.name()), (kind, "sale"), "{error}");
    assert!(error.to_string().contains(says), "{error}");
}
