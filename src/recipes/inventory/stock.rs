//! The counts of a SKU.

use redis::Value;

use crate::engine::redis::answers::number;

/// The counts of one SKU, all as of the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stock {
    /// All units that were ever stocked: the sum of the other three.
    pub stocked: u64,
    /// Units that can be reserved.
    pub available: u64,
    /// Units that are reserved, and neither sold nor given back yet.
    pub reserved: u64,
    /// Units that were sold.
    pub sold: u64,
}

impl Stock {
    /// Parses the rule's description of a SKU; `None` if it was never stocked.
    pub(crate) fn read(counts: &[Value]) -> Option<Stock> {
        let count = |i: usize| number(counts.get(i)).and_then(|n| n.try_into().ok());
        Some(Stock { stocked: count(0)?, available: count(1)?, reserved: count(2)?, sold: count(3)? })
    }
}
