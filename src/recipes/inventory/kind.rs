//! The kinds of an inventory: that of reservations, and that of its lock.

use crate::guard::{Guard, Ownership};
use crate::kind::{Kind, Queueing, Reentrancy, Sharing};
use crate::names;

const RULE: &str = rule_file!("../../../lua/inventory.lua");

/// The most units of a SKU that can ever be stocked: all numbers up to this one are exact in Lua.
pub(super) const MOST: u64 = (1 << 53) - 1;

/// The kind of a [`Reservation`](crate::inventory::Reservation): units that an [`Inventory`](crate::Inventory) has set
/// aside, in one hash with the counts of all its SKUs. They are either sold or returned.
///
/// A reservation never waits, and asks Redis by itself: neither other threads of its process nor the waiters
/// for the inventory's lock delay it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Units {
    pub(super) args: String,
}

impl Units {
    /// A placeholder without units, for a handle that reserves nothing.
    pub(crate) fn any() -> Units {
        Units { args: "take".to_owned() }
    }
}

impl Kind for Units {
    const NAME: &'static str = "inventory";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;

    fn args(&self) -> String {
        self.args.clone()
    }
}

/// The kind of an [`InventoryLock`](crate::inventory::InventoryLock): exclusive, and available only while there are
/// enough units of a SKU.
///
/// It is a second kind over the rule of [`Units`]: one holder at a time for the whole inventory, whichever
/// SKU it asks for, as one queue serves callers in order of arrival. To have a lock for each SKU, create an
/// inventory for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InStock {
    args: String,
}

impl InStock {
    /// At least `n` of `sku`. Returns an error text if these are invalid.
    pub(super) fn of(sku: &str, n: u64) -> Result<InStock, String> {
        Ok(InStock { args: format!("lock|{}|{}", check(n)?, names::part("SKU's name", sku)?) })
    }

    /// A placeholder without a SKU, for a handle that acquires nothing.
    pub(crate) fn nothing() -> InStock {
        InStock { args: "lock".to_owned() }
    }
}

impl Kind for InStock {
    const NAME: &'static str = "inventory lock";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::Exclusive;
    // The request may be for another SKU than the hold, and only Redis can decide that.
    const REENTRANCY: Reentrancy = Reentrancy::Forbidden;

    fn args(&self) -> String {
        self.args.clone()
    }
}

impl<O: Ownership> Guard<InStock, O> {
    /// The fencing token: greater than that of every earlier hold of this inventory's lock, in any process.
    /// See [`Exclusive`](crate::kinds::Exclusive).
    pub fn token(&self) -> u64 {
        self.hold.current_token()
    }
}

/// Checks a number of units; returns an error text if it is out of range.
pub(super) fn check(n: u64) -> Result<u64, String> {
    if (1..=MOST).contains(&n) { Ok(n) } else { Err(format!("units must be between 1 and {MOST}, got {n}")) }
}
