//! The audit: what a run's books and its workers' notes add up to.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::books::{Closing, Fate};
use super::crew::{Death, Report};
use super::order::Order;
use super::trace::Trace;

/// What was sold, and what went wrong. Sold, oversold and lost are in pieces.
#[derive(Debug, Default)]
pub struct Damage {
    pub sold: i64,
    /// Pieces sold that never existed, product by product.
    pub oversold: i64,
    /// Pieces by which the remaining stock differs from what was sold, product by product.
    pub lost_updates: i64,
    /// Sales to a customer that had bought the product before, or of an order sold before.
    pub duplicates: usize,
}

/// The outcome of the orders.
#[derive(Debug, Default)]
pub struct Fates {
    pub sold: usize,
    pub refused: usize,
    pub sold_out: usize,
    /// Orders of the file with no fate, and fates of orders that are not in the file.
    pub unaccounted: usize,
}

/// The orders that waited for a customer's lock.
#[derive(Debug, Default)]
pub struct CustomerWaits {
    pub all: usize,
    /// Of these, the ones that no order of the same customer explains.
    pub strangers: usize,
}

pub fn damage(stock: &BTreeMap<String, i64>, closing: &Closing) -> Damage {
    let mut sold: BTreeMap<&str, i64> = BTreeMap::new();
    let mut buyers = HashSet::new();
    let mut damage = Damage::default();
    for sale in &closing.sales {
        *sold.entry(&sale.product).or_default() += i64::from(sale.quantity);
        // An order that was sold twice is also a customer that bought twice.
        if !buyers.insert((&sale.customer, &sale.product)) {
            damage.duplicates += 1;
        }
    }
    for (product, initial) in stock {
        let sold = sold.get(product.as_str()).copied().unwrap_or(0);
        let left = closing.left.get(product).copied().unwrap_or(0);
        damage.sold += sold;
        damage.oversold += (sold - initial).max(0);
        damage.lost_updates += (sold - (initial - left)).abs();
    }
    damage
}

pub fn fates(orders: &[Order], closing: &Closing) -> Fates {
    let mut fates = Fates::default();
    for order in orders {
        let fate = closing.fates.get(&order.id).map(String::as_str);
        match [Fate::Sold, Fate::Refused, Fate::SoldOut].into_iter().find(|it| Some(it.name()) == fate) {
            Some(Fate::Sold) => fates.sold += 1,
            Some(Fate::Refused) => fates.refused += 1,
            Some(Fate::SoldOut) => fates.sold_out += 1,
            None => fates.unaccounted += 1,
        }
    }
    let decided = fates.sold + fates.refused + fates.sold_out;
    fates.unaccounted += closing.fates.len() - decided;
    fates
}

/// Checks the waits for customers' locks. An order may wait only while another order of the same customer has
/// the lock, so this looks for that order. The dead worker left no notes, so that its orders explain any wait
/// of their customers.
pub fn customer_waits(orders: &[Order], report: &Report) -> CustomerWaits {
    let customers: HashMap<&str, &str> =
        orders.iter().map(|it| (it.id.as_str(), it.customer.as_str())).collect();
    let customer = |trace: &Trace| customers.get(trace.order.as_str()).copied().unwrap_or("");
    let traces = || report.done.iter().flat_map(|it| &it.traces);
    let mut theirs: HashMap<&str, Vec<&Trace>> = HashMap::new();
    for trace in traces() {
        theirs.entry(customer(trace)).or_default().push(trace);
    }
    let noted: HashSet<&str> = traces().map(|it| it.order.as_str()).collect();
    let again = report.death.iter().flat_map(|it| &it.orders).map(String::as_str);
    let unnoted = orders.iter().map(|it| it.id.as_str()).filter(|it| !noted.contains(it));
    let dead: HashSet<&str> = again.chain(unnoted).filter_map(|it| customers.get(it).copied()).collect();
    let mut waits = CustomerWaits::default();
    for trace in traces().filter(|it| it.waited) {
        let customer = customer(trace);
        let explains = |other: &&Trace| {
            other.granted < trace.granted && other.released > trace.called && other.order != trace.order
        };
        waits.all += 1;
        if !dead.contains(customer) && !theirs[customer].iter().any(explains) {
            waits.strangers += 1;
        }
    }
    waits
}

/// Returns the microseconds from the kill until the lock that the dead worker held was granted to another.
pub fn recovery(orders: &[Order], report: &Report, death: &Death) -> Option<u64> {
    let products: HashMap<&str, &str> =
        orders.iter().map(|it| (it.id.as_str(), it.product.as_str())).collect();
    let traces = report.done.iter().flat_map(|it| &it.traces);
    traces
        .filter(|it| products.get(it.order.as_str()) == Some(&death.product.as_str()))
        .filter(|it| it.stock_granted > death.at)
        .map(|it| it.stock_granted - death.at)
        .min()
}
