//! What a reservation asks for.

use std::fmt::Write;
use std::time::Duration;

use super::kind::{MOST, check};
use crate::names;

/// The most SKUs in one order: a script must not take long.
const MOST_SKUS: usize = 100;

/// What one reservation asks for: units of one SKU or of several, all or nothing.
///
/// An invalid order is reported when it is used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use = "an order reserves nothing by itself"]
pub struct Order {
    units: Vec<(String, u64)>,
    id: Option<String>,
    customer: Option<(String, u64)>,
}

impl Order {
    /// `n` units of `sku`: at least one.
    pub fn of(sku: &str, n: u64) -> Order {
        Order { units: vec![(sku.to_owned(), n)], id: None, customer: None }
    }

    /// Adds `n` units of another SKU; up to 100 in all, each once.
    pub fn and(mut self, sku: &str, n: u64) -> Order {
        self.units.push((sku.to_owned(), n));
        self
    }

    /// Identifies this order among all others, whichever process serves it: see [the
    /// inventory](crate::Inventory#by-id).
    pub fn id(mut self, id: &str) -> Order {
        self.id = Some(id.to_owned());
        self
    }

    /// The customer that the order is for, with a quota of `limit` units of each of its SKUs. Units count if
    /// they are reserved, or were bought, by orders that name this customer.
    pub fn customer(mut self, name: &str, limit: u64) -> Order {
        self.customer = Some((name.to_owned(), limit));
        self
    }

    /// The arguments for the rule; the id is remembered for `memory` once the order was sold. Returns an error
    /// text if they are invalid.
    pub(super) fn args(&self, memory: Duration) -> Result<String, String> {
        if self.units.is_empty() || self.units.len() > MOST_SKUS {
            return Err(format!(
                "an order must name between 1 and {MOST_SKUS} SKUs, got {}",
                self.units.len()
            ));
        }
        let mut args = "take|".to_owned();
        if let Some(id) = &self.id {
            args += &names::part("reservation's id", id)?;
        }
        // Writing to a String cannot fail.
        let _ = write!(args, "|{}|", memory.as_millis());
        let mut limit = MOST;
        if let Some((customer, most)) = &self.customer {
            args += &names::part("customer's name", customer)?;
            limit = check(*most)?;
        }
        let _ = write!(args, "|{limit}");
        for (i, (sku, n)) in self.units.iter().enumerate() {
            if self.units[..i].iter().any(|(other, _)| other == sku) {
                return Err(format!("SKU {sku:?} is in the order twice"));
            }
            let n = check(*n).map_err(|why| format!("SKU {sku:?}: {why}"))?;
            if n > limit {
                return Err(format!(
                    "{n} units of {sku:?} requested, but a customer may have at most {limit}"
                ));
            }
            let _ = write!(args, "|{n}|{}", names::part("SKU's name", sku)?);
        }
        Ok(args)
    }
}
