//! An inventory of goods for sale: units are reserved, and then sold or given back.

use std::fmt::Write;
use std::time::Duration;

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::guard::{Guard, OwnedGuard, Ownership};
use crate::kind::{Kind, Queueing, Reentrancy, Sharing};
use crate::lock::RedisLock;
use crate::lock::inspect::Holder;
use crate::names;
use crate::settings::{check_lease, within};
use crate::wait::Wait;

/// Reserved units: sold by [`commit`](Reservation::commit), all given back when this is dropped. It may move
/// to another thread.
///
/// A hold like that of a lock: it has a lease, renewed in the background while its process lives, and
/// [reports](crate::Guard::lost) its loss, after which the units are on sale again.
/// [`cancel`](Reservation::cancel) gives them back and returns any error.
pub type Reservation = OwnedGuard<Units>;

/// The lock of an inventory, available while there are goods to sell: see [`Inventory::inventory_lock`].
pub type InventoryLock = RedisLock<InStock>;

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

/// How long the id of a sold order is remembered by default.
const MEMORY: Duration = Duration::from_secs(3600);

/// Units of any number of SKUs, counted in one place for all processes: what a sale needs ahead of any
/// database. The handle of one name, cheap to clone and to create.
///
/// ```
/// use redis_concurrent::Client;
/// use redis_concurrent::inventory::Order;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let inventory = client.inventory("spring-sale");
/// inventory.add_stock("tee", 3)?;
/// inventory.add_stock("mug", 1)?;
///
/// let both = Order::of("tee", 2).and("mug", 1).id("order-17").customer("alice", 2);
/// if let Some(reservation) = inventory.try_reserve(&both)? {
///     // … take the money; if that fails, dropping the reservation gives the units back
///     reservation.commit()?;
/// }
/// assert!(inventory.try_reserve(&Order::of("mug", 1))?.is_none()); // sold out
///
/// let tee = inventory.stock("tee")?;
/// assert_eq!((tee.stocked, tee.available, tee.reserved, tee.sold), (3, 1, 0, 2));
/// # Ok(())
/// # }
/// ```
///
/// # How it counts
///
/// Every unit is in one of three counts: `stocked = available + reserved + sold`, at all times and whatever
/// fails. One script, which Redis runs atomically, moves units from one count to another, and no count drops
/// below zero. A reservation takes all it asks for or none, across all its SKUs.
///
/// A reservation has a lease, renewed while its process lives. The units of a process that died return when
/// the lease expires; a [fixed](Inventory::with_lease) lease is for customers that have that long to pay. The
/// counts belong to the inventory's users: they stay until [`delete`](Inventory::delete), and do not expire.
///
/// A decision takes one request, and no queue forms for it: a caller that finds the goods sold out learns so
/// at once, and may try again later.
///
/// # Example
///
/// `examples/flash_inventory.rs` sells ten lamps to a hundred customers.
///
/// # By id
///
/// An order may have an [id](Order::id), which identifies it across callers: at most one reservation per id
/// exists at a time, and what was sold under it is not sold again. While one exists, another attempt with the
/// same id gets `Conflict` and changes nothing, even if the process of the first one has died, until its
/// lease expires. (That two processes serve the same order is not a rare accident but what happens when a
/// message is delivered twice, and the first of them may just be taking the money.) Once the reservation was
/// committed, another attempt gets `Conflict` as well, for an [hour](Inventory::expire_ids_after);
/// [`is_committed`](Inventory::is_committed) distinguishes the two. An order whose reservation was given back
/// or has expired may be placed again.
///
/// # Errors of all forms
///
/// `Refused` for an unknown SKU, for more than was ever stocked of it, and for more than its customer's
/// quota. `InvalidInput`, without a request, for zero units, no SKUs, the same SKU twice, or a name that is
/// empty or longer than 1,024 bytes. `Conflict`: see above. `Unavailable` if Redis cannot be reached; what
/// may have been reserved is given back. `OutcomeUnknown` if an update got no reply. `WrongType` if the key
/// is in use by something else. `Closed`, `Forked`. After any error but `OutcomeUnknown` nothing has changed.
#[derive(Clone)]
pub struct Inventory {
    units: RedisLock<Units>,
    lock: InventoryLock,
    memory: Duration,
}

// Shows the name. The counts would take a request: see [`stock`](Inventory::stock).
shows!(Inventory as "Inventory", |it| "name": it.units.name());

impl Client {
    /// The inventory `name`: units of any number of SKUs, which callers reserve, and then sell or give back.
    pub fn inventory(&self, name: &str) -> Inventory {
        Inventory {
            units: self.lock_with_kind(name, Units::any()),
            // Each caller asks Redis whether there is enough: the lock is not handed on locally.
            lock: self.lock_with_kind(name, InStock::nothing()).fair(),
            memory: MEMORY,
        }
    }
}

impl Inventory {
    /// The same inventory with a fixed lease: units reserved through this handle return by themselves at most
    /// `lease` after they were reserved, and the reservation is never renewed. At least 100 ms, at most a
    /// year.
    #[must_use]
    pub fn with_lease(&self, lease: Duration) -> Self {
        Inventory { units: self.units.with_lease(lease), ..self.clone() }.checked("lease", lease)
    }

    /// The same inventory for orders whose ids are remembered for this long after they were sold. Default: an
    /// hour; at least 100 ms, at most a year. Each takes some hundred bytes in Redis meanwhile.
    #[must_use]
    pub fn expire_ids_after(&self, memory: Duration) -> Self {
        Inventory { memory, ..self.clone() }.checked("memory of ids", memory)
    }

    // ---- the stock -------------------------------------------------------------------------

    /// Puts `n` more units of `sku` on sale; the first ones make the SKU known. One request.
    ///
    /// # Errors
    /// `Refused` if more than 2^53-1 would ever have been stocked; see also [the
    /// type](Inventory#errors-of-all-forms).
    pub fn add_stock(&self, sku: &str, n: u64) -> Result<(), Error> {
        let (n, field) = (self.config(check(n))?.to_string(), self.sku(sku)?);
        if self.units.update_state(&["add_stock", &n, &field])? {
            return Ok(());
        }
        let why = format!("at most {MOST} units of {sku:?} can ever be stocked");
        Err(self.units.error(ErrorKind::Refused, why))
    }

    /// The counts of `sku`, all as of the same moment. One request.
    ///
    /// # Errors
    /// `Refused` if it was never stocked: [`add_stock`](Inventory::add_stock) comes first. See also [the
    /// type](Inventory#errors-of-all-forms).
    pub fn stock(&self, sku: &str) -> Result<Stock, Error> {
        let counts: Vec<String> =
            self.units.inspect_state(&format!("sku|{}", self.sku(sku)?), Wait::forever())?;
        match counts.iter().map(|n| n.parse().ok()).collect::<Vec<_>>()[..] {
            [Some(stocked), Some(available), Some(reserved), Some(sold)] => {
                Ok(Stock { stocked, available, reserved, sold })
            }
            _ => {
                let why = format!("unknown SKU {sku:?}: add_stock comes first");
                Err(self.units.error(ErrorKind::Refused, why))
            }
        }
    }

    /// Whether the order with this id was sold, no longer ago than ids are
    /// [remembered](Inventory::expire_ids_after). One request.
    ///
    /// # Errors
    /// See [the type](Inventory#errors-of-all-forms).
    pub fn is_committed(&self, id: &str) -> Result<bool, Error> {
        let id = self.config(names::field("reservation's id", id))?;
        self.units.inspect_state(&format!("id|{id}"), Wait::forever())
    }

    /// The holders of reservations, in all processes, in the order in which their leases expire. One request;
    /// for more than a hundred holders, one for every twenty or so.
    ///
    /// # Errors
    /// See [the type](Inventory#errors-of-all-forms).
    pub fn holders(&self) -> Result<Vec<Holder>, Error> {
        let mut holders = self.units.holders()?;
        // If there are many, Redis lists them in the order of a hash.
        holders.sort_by_key(|held| held.remaining);
        Ok(holders)
    }

    /// Deletes the inventory, with all its counts. Reservations are lost, as their holders learn at their
    /// next renewal or commit; waiters for the inventory's lock are rejected. Ids of sold orders are
    /// remembered as before. Returns whether there was an inventory. One request.
    ///
    /// # Errors
    /// See [the type](Inventory#errors-of-all-forms).
    pub fn delete(&self) -> Result<bool, Error> {
        self.units.update_state(&["delete"])
    }

    // ---- reserving -------------------------------------------------------------------------

    /// Reserves all that `order` asks for; `None`, with nothing reserved, if too few units of some SKU are
    /// available now. Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// See [the type](Inventory#errors-of-all-forms).
    pub fn try_reserve(&self, order: &Order) -> Result<Option<Reservation>, Error> {
        let args = self.config(order.args(self.memory))?;
        self.units.with_kind(Units { args }).try_lock_owned()
    }

    // ---- the lock --------------------------------------------------------------------------

    /// The inventory's lock, available as long as at least `n` units of `sku` are: one holder at a time for
    /// the whole inventory, whichever SKU it asked for. A waiter gets `Refused` as soon as too few units are
    /// left, instead of waiting for nothing:
    ///
    /// - at once if the SKU is sold out, wherever the waiter is in the queue;
    /// - if fewer than `n` are left, when it arrives, or is the first in the queue;
    /// - if it waits behind other threads of its process, when its turn has come: at most one waiter per
    ///   process is in Redis's queue.
    ///
    /// The number available may decrease while the lock is held: reservations need no lock. The lock has all
    /// the methods of any other, is always [fair](RedisLock::fair), as each caller asks Redis, and is not
    /// reentrant. Its guards have a [token](crate::Guard::token).
    pub fn inventory_lock(&self, sku: &str, n: u64) -> InventoryLock {
        match InStock::of(sku, n) {
            Ok(kind) => self.lock.with_kind(kind),
            Err(why) => self.lock.clone().checked(|| Err(why)),
        }
    }

    // ---- underneath ------------------------------------------------------------------------

    fn config<T>(&self, checked: Result<T, String>) -> Result<T, Error> {
        checked.map_err(|why| self.units.error(ErrorKind::InvalidInput, why))
    }

    fn sku(&self, sku: &str) -> Result<String, Error> {
        self.config(names::field("SKU's name", sku))
    }

    fn checked(self, what: &str, time: Duration) -> Self {
        let check = || check_lease(what, time);
        Inventory { units: self.units.checked(check), lock: self.lock.checked(check), ..self }
    }
}

impl Reservation {
    /// Gives the units back, as [`unlock`](crate::Guard::unlock) does: they are on sale again. Blocks for the
    /// command timeout at most.
    ///
    /// # Errors
    /// Those of [`Guard::unlock`](crate::Guard::unlock).
    pub fn cancel(self) -> Result<(), Error> {
        self.unlock()
    }

    /// Marks the units as sold: they are no longer reserved, and never return. Takes effect once, however
    /// often it has to be sent: while Redis does not reply, it is sent again, for as long as
    /// [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout) says, at most 30 s. Usually one
    /// request.
    ///
    /// # Errors
    /// `LeaseLost` if the reservation had ended before, so that its units are on sale again. `OutcomeUnknown`
    /// if there was no reply: the units were sold, or else are given back in the background; for an order
    /// with an id, [`is_committed`](Inventory::is_committed) tells which. `Unavailable` if Redis accepted no
    /// request: the units are given back. `Closed`, `Forked`.
    pub fn commit(self) -> Result<(), Error> {
        self.conclude(&["commit"])
    }
}

const RULE: &str = rule_file!("../../lua/inventory.lua");

/// The most units of a SKU that can ever be stocked: all numbers up to this one are exact in Lua.
const MOST: u64 = (1 << 53) - 1;

/// The kind of a [`Reservation`]: units that an [`Inventory`] has set
/// aside, in one hash with the counts of all its SKUs. They are either sold or returned.
///
/// A reservation never waits, and asks Redis by itself: neither other threads of its process nor the waiters
/// for the inventory's lock delay it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Units {
    args: String,
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

/// The kind of an [`InventoryLock`]: exclusive, and available only while there are
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
    fn of(sku: &str, n: u64) -> Result<InStock, String> {
        Ok(InStock { args: format!("lock|{}|{}", check(n)?, names::field("SKU's name", sku)?) })
    }

    /// A placeholder without a SKU, for a handle that acquires nothing.
    pub(crate) fn nothing() -> InStock {
        InStock { args: "lock".to_owned() }
    }
}

impl Kind for InStock {
    const NAME: &'static str = "inventory lock";
    const RULE: &'static str = RULE;
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
fn check(n: u64) -> Result<u64, String> {
    within("units", n, 1..=MOST).map(|()| n)
}

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
    fn args(&self, memory: Duration) -> Result<String, String> {
        within("the number of SKUs in an order", self.units.len(), 1..=MOST_SKUS)?;
        let mut args = "take|".to_owned();
        if let Some(id) = &self.id {
            args += &names::field("reservation's id", id)?;
        }
        // Writing to a String cannot fail.
        let _ = write!(args, "|{}|", memory.as_millis());
        let mut limit = MOST;
        if let Some((customer, most)) = &self.customer {
            args += &names::field("customer's name", customer)?;
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
            let _ = write!(args, "|{n}|{}", names::field("SKU's name", sku)?);
        }
        Ok(args)
    }
}
