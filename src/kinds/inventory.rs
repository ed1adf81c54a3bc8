//! A gate before goods for sale: units are reserved, and then sold or given back.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::meeting::Meeting;
use crate::engine::redis::answers::number;
use crate::engine::runtime::Shared;
use crate::engine::state::lock_state::Terms;
use crate::error::{Error, ErrorKind};

use crate::guard::{Guard, OwnedGuard, Ownership};
use crate::kind::{Kind, Reentrancy, Sharing};
use crate::lock::holder::Holder;
use crate::lock::{Hold, RedisLock};
use crate::names;
use crate::settings::check_lease;
use crate::wait::Wait;

/// Units that were reserved: sold by [`commit`](OwnedGuard::commit), given back when dropped, all of them at
/// once. It may go to another thread.
///
/// A hold like that of a lock: it has a lease, renewed in the background while its process lives, and
/// [says](crate::Guard::lost) when it is lost: then the units are on sale again. [`unlock`](OwnedGuard::unlock) gives
/// them back and says how that went.
pub type Reservation = OwnedGuard<Units>;

/// The lock of a gate, to be had while there is something to sell: see [`Inventory::inventory_lock`].
pub type InventoryLock = RedisLock<InStock>;

/// For how long the id of what was sold is remembered, if nothing else was asked for.
const MEMORY: Duration = Duration::from_secs(3600);

/// Units of any number of SKUs, in one place for all processes: what a sale needs before any database. The
/// handle of one name, cheap to clone and to make.
///
/// ```
/// use redis_concurrent::{Client, Order};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let gate = client.inventory("spring-sale");
/// gate.add_stock("tee", 3)?;
/// gate.add_stock("mug", 1)?;
///
/// let both = Order::of("tee", 2).and("mug", 1).id("order-17").customer("alice", 2);
/// if let Some(reservation) = gate.try_reserve_order(&both)? {
///     // … take the money; should that fail, dropping it gives the units back
///     reservation.commit()?;
/// }
/// assert!(gate.try_reserve("mug", 1)?.is_none()); // sold out
///
/// let tee = gate.stock("tee")?;
/// assert_eq!((tee.restocked, tee.available, tee.reserved, tee.sold), (3, 1, 0, 2));
/// # Ok(())
/// # }
/// ```
///
/// # How it counts
///
/// Every unit is in one of three counts: `restocked = available + reserved + sold`, at every time and whatever
/// fails. One script, which Redis runs as a whole, moves units from one to another, and never below zero.
/// A reservation takes all it asks for or nothing, of all its SKUs.
///
/// What is reserved has a lease, renewed while its process lives. The units of a process that died are back
/// when that is over; a [fixed](Inventory::with_lease) one is for customers who may take so long to pay.
/// The counts are the gate's users': they stay until [`delete`](Inventory::delete), with no end of their own.
///
/// A decision is one request, and nobody stands in line for it: who comes when nothing is left is told so at
/// once, and may come again.
///
/// # Example
///
/// `examples/flash_gate.rs` sells ten lamps to a hundred customers.
///
/// # By id
///
/// An order may have an [id](Order::id), which says that it is the same one, whoever asks: at most one
/// reservation is out by an id, and what was sold by it is not sold again. While one is out, another attempt
/// by the same id is a `Conflict`, and leaves everything as it is: also where the first one's process has died,
/// until its lease is over. (That two processes serve the same order is no rare accident but what happens when
/// a message is delivered twice, and the first of them may just be taking the money.) Once it was committed it
/// is a `Conflict` as well, for an [hour](Inventory::remember_for); [`is_committed`](Inventory::is_committed)
/// tells the two apart. An order whose reservation was given back or lapsed may come again.
///
/// # Errors of all forms
///
/// `Refused` for an unknown SKU, for more than was ever stocked of it, and for more than its customer may have.
/// `Config` for no units, no SKUs, the same one twice, a name that is empty or beyond 1,024 bytes: with nothing
/// sent. `Conflict`: see above. `Unavailable` when Redis cannot be reached; what may have been reserved is
/// given back. `Unknown` when a change had no answer. `WrongType` when the key is in use by something else.
/// `Closed`, `Forked`. No error changes anything.
#[derive(Clone)]
pub struct Inventory {
    meeting: Meeting<Units>,
    lock: InventoryLock,
    lease: Option<Duration>,
    memory: Duration,
}

impl fmt::Debug for Inventory {
    /// Its name. The counts would be a request: see [`stock`](Inventory::stock).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StockGate").field("name", &self.meeting).finish_non_exhaustive()
    }
}

/// What one reservation asks for: units of one SKU or of several, all or nothing.
///
/// What is wrong with it is told where it is used.
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

    /// And `n` of another SKU; up to 100 in all, each once.
    pub fn and(mut self, sku: &str, n: u64) -> Order {
        self.units.push((sku.to_owned(), n));
        self
    }

    /// What tells this order from all others, whichever process serves it: see [the gate](Inventory#by-id).
    pub fn id(mut self, id: &str) -> Order {
        self.id = Some(id.to_owned());
        self
    }

    /// Whom it is for: this customer has at most `limit` units of each of its SKUs, of those that it has
    /// reserved and those that it bought, by orders that named it.
    pub fn customer(mut self, name: &str, limit: u64) -> Order {
        self.customer = Some((name.to_owned(), limit));
        self
    }
}

/// The counts of one SKU, all of the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stock {
    /// Units that were ever put in stock: the sum of the other three.
    pub restocked: u64,
    /// Units that can be reserved.
    pub available: u64,
    /// Units that are reserved, and neither sold nor given back yet.
    pub reserved: u64,
    /// Units that were sold.
    pub sold: u64,
}

impl Inventory {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        Inventory {
            meeting: Meeting::new(shared, name),
            // Each that comes in asks Redis whether there is enough: nobody is handed the lock here.
            lock: RedisLock::new(shared, InStock::nothing(), name).fair(),
            lease: None,
            memory: MEMORY,
        }
    }

    /// The same gate with a fixed lease: what is reserved by this handle comes back by itself at most `lease`
    /// after it was reserved, and is never renewed. At least 100 ms, at most a year.
    #[must_use]
    pub fn with_lease(&self, lease: Duration) -> Self {
        let gate = Inventory { lease: Some(lease), ..self.clone() };
        gate.checked("lease", lease)
    }

    /// The same gate for reservations whose ids are remembered for so long after they were sold. Default an
    /// hour; at least 100 ms, at most a year. Each takes some hundred bytes in Redis meanwhile.
    #[must_use]
    pub fn remember_for(&self, memory: Duration) -> Self {
        let gate = Inventory { memory, ..self.clone() };
        gate.checked("memory of ids", memory)
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.meeting.name()
    }

    // ---- what there is ---------------------------------------------------------------------

    /// Puts `n` units more of `sku` on sale; the first ones make it known. One request.
    ///
    /// # Errors
    /// `Refused` where more than 2^53-1 would ever have been stocked; see also
    /// [the type](Inventory#errors-of-all-forms).
    pub fn add_stock(&self, sku: &str, n: u64) -> Result<(), Error> {
        let (n, field) = (self.config(check(n))?.to_string(), self.sku(sku)?);
        if self.meeting.change(&["restock", &n, &field])? == 1 {
            return Ok(());
        }
        let why = format!("of {sku:?} at most {MOST} are ever stocked");
        Err(self.meeting.error(ErrorKind::Refused, why))
    }

    /// The counts of `sku`, all of the same moment. One request.
    ///
    /// # Errors
    /// `Refused` where it was never stocked; see also [the type](Inventory#errors-of-all-forms).
    pub fn stock(&self, sku: &str) -> Result<Stock, Error> {
        let state = self.meeting.ask(&format!("sku|{}", self.sku(sku)?))?.state;
        let count = |i: usize| number(state.get(i)).and_then(|n| n.try_into().ok());
        let read = || {
            Some(Stock { restocked: count(0)?, available: count(1)?, reserved: count(2)?, sold: count(3)? })
        };
        let unknown = || self.meeting.error(ErrorKind::Refused, format!("it has no SKU {sku:?}"));
        read().ok_or_else(unknown)
    }

    /// How many units of `sku` can be reserved. One request.
    ///
    /// # Errors
    /// Those of [`stock`](Inventory::stock).
    pub fn available(&self, sku: &str) -> Result<u64, Error> {
        Ok(self.stock(sku)?.available)
    }

    /// How many units of `sku` are reserved. One request.
    ///
    /// # Errors
    /// Those of [`stock`](Inventory::stock).
    pub fn reserved(&self, sku: &str) -> Result<u64, Error> {
        Ok(self.stock(sku)?.reserved)
    }

    /// How many units of `sku` were sold. One request.
    ///
    /// # Errors
    /// Those of [`stock`](Inventory::stock).
    pub fn sold(&self, sku: &str) -> Result<u64, Error> {
        Ok(self.stock(sku)?.sold)
    }

    /// Whether what was reserved by this id was sold, not longer ago than ids are
    /// [remembered](Inventory::remember_for). One request.
    ///
    /// # Errors
    /// See [the type](Inventory#errors-of-all-forms).
    pub fn is_committed(&self, id: &str) -> Result<bool, Error> {
        let id = self.config(names::part("reservation's id", id))?;
        Ok(number(self.meeting.ask(&format!("id|{id}"))?.state.first()) == Some(1))
    }

    /// Who has reserved units, in all processes, in the order in which their leases end. One request.
    ///
    /// # Errors
    /// See [the type](Inventory#errors-of-all-forms).
    pub fn holders(&self) -> Result<Vec<Holder>, Error> {
        let holders = self.meeting.ask("take")?.holders;
        Ok(holders.into_iter().map(|held| Holder::new(held, 0)).collect())
    }

    /// The gate ends now, with all its counts. Who has a reservation has lost it, and learns of it at its next
    /// renewal or commit; who waits for the gate's lock is refused. Ids of what was sold are remembered as
    /// before. Returns whether there was one. One request.
    ///
    /// # Errors
    /// See [the type](Inventory#errors-of-all-forms).
    pub fn delete(&self) -> Result<bool, Error> {
        Ok(self.meeting.change(&["delete"])? == 1)
    }

    // ---- reserving -------------------------------------------------------------------------

    /// Reserves `n` units of `sku`; `None` where there are not so many now. Blocks for one request, at most
    /// the command limit.
    ///
    /// # Errors
    /// See [the type](Inventory#errors-of-all-forms).
    pub fn try_reserve(&self, sku: &str, n: u64) -> Result<Option<Reservation>, Error> {
        self.reserve(None, None, &[(sku, n)])
    }

    /// Reserves all that `order` asks for; `None`, and nothing taken, where there is not so much of something
    /// now. Blocks for one request, at most the command limit.
    ///
    /// # Errors
    /// See [the type](Inventory#errors-of-all-forms).
    pub fn try_reserve_order(&self, order: &Order) -> Result<Option<Reservation>, Error> {
        let units: Vec<_> = order.units.iter().map(|(sku, n)| (&**sku, *n)).collect();
        let customer = order.customer.as_ref().map(|(name, limit)| (&**name, *limit));
        self.reserve(order.id.as_deref(), customer, &units)
    }

    fn reserve(
        &self,
        id: Option<&str>,
        customer: Option<(&str, u64)>,
        units: &[(&str, u64)],
    ) -> Result<Option<Reservation>, Error> {
        let config = &self.meeting.cell()?.shared.config;
        let wishes = Wishes { id, memory: self.memory.as_millis(), customer, units };
        let args = self.config(wishes.args())?;
        let mut terms = Terms::new(self.lease.unwrap_or(config.lease), args);
        terms.fixed = self.lease.is_some();
        let taken = self.meeting.come_in_on(terms, &Wait::once())?;
        Ok(taken.map(|(cell, grip)| OwnedGuard::new(Hold::new(cell, grip))))
    }

    // ---- the lock --------------------------------------------------------------------------

    /// The gate's lock, for as long as at least `n` units of `sku` are available: one holder at a time for the
    /// whole gate, whichever SKU it asked for. Who waits for it gets `Refused` the moment that there is
    /// nothing left to have it for, instead of waiting in vain:
    ///
    /// - at once where nothing of the SKU is left, wherever it stands in the queue;
    /// - where there are fewer than `n`, when it is the first one in the queue, or comes;
    /// - behind other threads of its process, when their turn has come. So many wait in Redis as there are
    ///   processes.
    ///
    /// What is available may become less while somebody holds the lock: reservations need no lock. It has
    /// all the forms of a lock, is [fair](RedisLock::fair) always, as each that comes in asks Redis, and not
    /// reentrant. It has a [token](crate::Guard::token).
    pub fn inventory_lock(&self, sku: &str, n: u64) -> InventoryLock {
        match InStock::of(sku, n) {
            Ok(kind) => self.lock.with_kind(kind),
            Err(why) => self.lock.clone().checked(|| Err(why)),
        }
    }

    // ---- underneath ------------------------------------------------------------------------

    fn config<T>(&self, checked: Result<T, String>) -> Result<T, Error> {
        checked.map_err(|why| self.meeting.error(ErrorKind::InvalidInput, why))
    }

    fn sku<'a>(&self, sku: &'a str) -> Result<Cow<'a, str>, Error> {
        self.config(names::part("SKU's name", sku))
    }

    fn checked(self, what: &str, time: Duration) -> Self {
        let Err(why) = check_lease(what, time) else { return self };
        let meeting =
            self.meeting.failing(Error::new(ErrorKind::InvalidInput, self.lock.name()).because(&*why));
        Inventory { meeting, lock: self.lock.checked(|| Err(why)), ..self }
    }
}

impl OwnedGuard<Units> {
    /// The units are sold: they are reserved no more, and never come back. Done once, however often it has to
    /// be sent: while Redis does not answer it is asked again, for as long as
    /// [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout) says, at most 30 s. Mostly one request.
    ///
    /// # Errors
    /// `LeaseLost` when the reservation was over before, so that its units are on sale again. `Unknown` when
    /// there was no answer: they may have been sold, or else are given back in the background; of an order with
    /// an id [`is_committed`](Inventory::is_committed) tells which. `Unavailable` when Redis took no request;
    /// they are given back. `Closed`, `Forked`.
    pub fn commit(self) -> Result<(), Error> {
        self.hold.conclude("commit")
    }
}

const RULE: &str = include_str!("../../lua/stock.lua");

/// The most units of a SKU that are ever stocked: all numbers up to this one are exact in Lua.
pub(crate) const MOST: u64 = (1 << 53) - 1;
/// The most SKUs in one order: a script is to be short.
pub(crate) const MOST_SKUS: usize = 100;

/// The kind of a [`Reservation`](crate::Reservation): units that a [`Inventory`](crate::Inventory) has set
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
    const REENTRY: Reentrancy = Reentrancy::Independent;
}

/// The kind of a [`InventoryLock`](crate::InventoryLock): exclusive, and only to be had while there are so many units
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
    const REENTRY: Reentrancy = Reentrancy::Forbidden;

    fn args(&self) -> String {
        self.args.clone()
    }
}

impl<O: Ownership> Guard<'_, InStock, O> {
    /// The fencing token: greater than that of every earlier hold of this gate's lock, in any process. See
    /// [`Exclusive`](crate::Exclusive).
    pub fn token(&self) -> u64 {
        self.hold.current_token()
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
