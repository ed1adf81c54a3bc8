//! Units of goods that are for sale, and a lock for as long as there are some.

use std::fmt::Write;

use crate::guard::Hold;
use crate::kind::{Kind, Reentry, Sharing};
use crate::names;

const RULE: &str = include_str!("../../lua/stock.lua");

/// The most units of a SKU that are ever stocked: all numbers up to this one are exact in Lua.
pub(crate) const MOST: u64 = (1 << 53) - 1;
/// The most SKUs in one order: a script is to be short.
pub(crate) const MOST_SKUS: usize = 100;

/// The kind of a [`Reservation`](crate::Reservation): units that a [`StockGate`](crate::StockGate) has set
/// aside, in one hash with the counts of all its SKUs. They are sold, or come back.
///
/// A reservation never waits, and asks Redis by itself: neither for other threads of its process nor for who
/// waits for the gate's lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Units(());

impl Kind for Units {
    const NAME: &'static str = "stock gate";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::Shared;
    const REENTRY: Reentry = Reentry::Another;
}

/// The kind of a [`StockLock`](crate::StockLock): exclusive, and only to be had while there are so many units
/// of a SKU.
///
/// It is a second kind on the rule of [`Units`]: one holder at a time for the whole gate, whichever SKU it
/// asks for, as one queue serves who came first. Whoever needs a lock for each SKU makes a gate for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InStock {
    args: String,
}

impl InStock {
    /// At least `n` of `sku`. Says what is wrong with that, if anything.
    pub(crate) fn of(sku: &str, n: u64) -> Result<InStock, String> {
        Ok(InStock { args: format!("lock|{}|{}", check(n)?, names::part("SKU's name", sku)?) })
    }

    /// Of nothing in particular, for a handle that cannot work.
    pub(crate) fn nothing() -> InStock {
        InStock { args: "lock".to_owned() }
    }
}

impl Kind for InStock {
    const NAME: &'static str = "stock lock";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::Exclusive;
    // Another SKU may be asked for than is held for, and that only Redis can answer.
    const REENTRY: Reentry = Reentry::Refuse;

    fn args(&self) -> String {
        self.args.clone()
    }
}

impl Hold<InStock> {
    /// The fencing token: greater than that of every earlier hold of this gate's lock, in any process. See
    /// [`Exclusive`](crate::Exclusive).
    pub fn token(&self) -> u64 {
        self.current_token()
    }
}

/// A number of units. Says what is wrong with it, if anything.
pub(crate) fn check(n: u64) -> Result<u64, String> {
    if (1..=MOST).contains(&n) {
        Ok(n)
    } else {
        Err(format!("a number of units is from 1 to {MOST}, not {n}"))
    }
}

/// What a reservation asks for.
#[derive(Debug)]
pub(crate) struct Wishes<'a> {
    pub(crate) id: Option<&'a str>,
    /// For how long the id is remembered once it was sold, in ms.
    pub(crate) memory: u128,
    /// A customer, and how many units of each SKU it may have in all.
    pub(crate) customer: Option<(&'a str, u64)>,
    pub(crate) units: &'a [(&'a str, u64)],
}

impl Wishes<'_> {
    /// As the rule is told. Says what is wrong with them, if anything.
    pub(crate) fn args(&self) -> Result<String, String> {
        if self.units.is_empty() || self.units.len() > MOST_SKUS {
            return Err(format!("an order is of 1 to {MOST_SKUS} SKUs, not {}", self.units.len()));
        }
        let mut args = "take|".to_owned();
        if let Some(id) = self.id {
            args += &names::part("reservation's id", id)?;
        }
        // Writing to a String cannot fail.
        let _ = write!(args, "|{}|", self.memory);
        let mut limit = MOST;
        if let Some((customer, most)) = self.customer {
            args += &names::part("customer's name", customer)?;
            limit = check(most)?;
        }
        let _ = write!(args, "|{limit}");
        for (i, (sku, n)) in self.units.iter().enumerate() {
            if self.units[..i].iter().any(|(other, _)| other == sku) {
                return Err(format!("the SKU {sku:?} is in the order twice"));
            }
            let n = check(*n).map_err(|why| format!("of {sku:?}: {why}"))?;
            if n > limit {
                return Err(format!("of {sku:?} {n} are asked for, and a customer may have {limit}"));
            }
            let _ = write!(args, "|{n}|{}", names::part("SKU's name", sku)?);
        }
        Ok(args)
    }
}
