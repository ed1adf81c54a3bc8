//! The books of one sale in Redis, and queries on them. This module knows no locks.
//!
//! | key | |
//! | --- | --- |
//! | `open` | a list: the orders that no worker has taken |
//! | `claimed:<worker>` | a list: the orders that a worker has taken and not finished |
//! | `stock:<product>` | a string: pieces left |
//! | `bought:<customer>` | a hash: product → the order it was sold by |
//! | `orders` | a hash: order id → its outcome |
//! | `journal` | a list: every sale that was written |
//!
//! An order is always in one of the first two lists, or in `orders`: a single command moves it, and a single
//! transaction writes its outcome and removes it from the list.
//!
//! In the run with an inventory, the inventory keeps the pieces and knows each buyer: `stock` and `bought`
//! are not written.

use std::collections::{BTreeMap, HashMap};

use redis::{Cmd, Commands, Connection, Direction, Pipeline, RedisResult, cmd, pipe};

use super::order::Order;

/// An interrupted demo leaves keys behind for no longer than this, in seconds.
const LIFE: u64 = 600;

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Sold,
    /// The customer has bought this product before.
    Refused,
    /// Too few pieces are left.
    SoldOut,
}

impl Fate {
    pub fn name(self) -> &'static str {
        match self {
            Fate::Sold => "sold",
            Fate::Refused => "refused",
            Fate::SoldOut => "sold out",
        }
    }
}

/// What happened before this order.
pub struct History {
    /// The customer has bought this product.
    pub bought: bool,
    /// The order is already decided: by a worker that died before the others knew.
    pub decided: bool,
}

impl History {
    /// The outcome of the order while `left` pieces of its product are left.
    pub fn fate(&self, order: &Order, left: i64) -> Fate {
        if self.bought {
            Fate::Refused
        } else if left < i64::from(order.quantity) {
            Fate::SoldOut
        } else {
            Fate::Sold
        }
    }
}

/// An order that this worker has taken.
pub struct Claim {
    pub order: Order,
    /// The order as it is in the lists.
    text: String,
}

/// The books at the end.
pub struct Closing {
    pub left: BTreeMap<String, i64>,
    pub fates: HashMap<String, String>,
    pub sales: Vec<Order>,
}

/// One connection to the books, for one worker.
pub struct Books {
    connection: Connection,
    prefix: String,
}

impl Books {
    pub fn open(url: &str, prefix: &str) -> RedisResult<Books> {
        let connection = redis::Client::open(url)?.get_connection()?;
        Ok(Books { connection, prefix: prefix.to_owned() })
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    fn claimed(&self, worker: usize) -> String {
        self.key(&format!("claimed:{worker}"))
    }

    /// Returns the key of the pieces left of a product.
    pub fn stock(&self, product: &str) -> String {
        self.key(&format!("stock:{product}"))
    }

    /// Returns the key of what a customer has bought.
    pub fn bought(&self, customer: &str) -> String {
        self.key(&format!("bought:{customer}"))
    }

    /// Writes the initial stock and the list of orders.
    pub fn begin(&mut self, stock: &BTreeMap<String, i64>, orders: &[Order]) -> RedisResult<()> {
        for (product, pieces) in stock {
            let _: () = self.connection.set_ex(self.stock(product), pieces, LIFE)?;
        }
        for some in orders.chunks(1000) {
            let texts: Vec<String> = some.iter().map(text).collect();
            let _: () = self.connection.rpush(self.key("open"), texts)?;
        }
        Ok(())
    }

    /// Takes the next order, if there is one.
    pub fn claim(&mut self, worker: usize) -> RedisResult<Option<Claim>> {
        let (open, claimed) = (self.key("open"), self.claimed(worker));
        let text: Option<String> = self.connection.lmove(open, claimed, Direction::Left, Direction::Right)?;
        Ok(text.map(|text| Claim { order: order(&text), text }))
    }

    /// The first read, which the customer's lock protects.
    pub fn history(&mut self, order: &Order) -> RedisResult<History> {
        let [bought, decided] = self.asks_history(order);
        let (bought, decided) =
            pipe().add_command(bought).add_command(decided).query(&mut self.connection)?;
        Ok(History { bought, decided })
    }

    /// Returns the queries for it: whether the customer has bought this product, whether the order is
    /// decided.
    pub fn asks_history(&self, order: &Order) -> [Cmd; 2] {
        let mut bought = cmd("HEXISTS");
        bought.arg(self.bought(&order.customer)).arg(&order.product);
        let mut decided = cmd("HEXISTS");
        decided.arg(self.key("orders")).arg(&order.id);
        [bought, decided]
    }

    /// The second read, which the product's lock protects.
    pub fn left(&mut self, order: &Order) -> RedisResult<i64> {
        self.connection.get(self.stock(&order.product))
    }

    /// The write, in one transaction: the remaining stock is what was *read* minus what is sold, as in any
    /// program that reads, decides and writes.
    pub fn write(&mut self, worker: usize, claim: &Claim, left: i64, fate: Fate) -> RedisResult<()> {
        let mut transaction = pipe();
        transaction.atomic();
        self.take(&mut transaction, &claim.order, left, fate);
        self.note(&mut transaction, worker, claim, fate);
        transaction.exec(&mut self.connection)
    }

    /// Writes the outcome that the inventory has decided.
    pub fn write_fate(&mut self, worker: usize, claim: &Claim, fate: Fate) -> RedisResult<()> {
        let mut transaction = pipe();
        transaction.atomic();
        self.note(&mut transaction, worker, claim, fate);
        transaction.exec(&mut self.connection)
    }

    /// Adds the writes of a sale: what is left, and the buyer.
    pub fn take(&self, transaction: &mut Pipeline, order: &Order, left: i64, fate: Fate) {
        if fate == Fate::Sold {
            let bought = self.bought(&order.customer);
            transaction.set_ex(self.stock(&order.product), left - i64::from(order.quantity), LIFE);
            transaction.hset(&bought, &order.product, &order.id);
            transaction.expire(bought, LIFE as i64);
        }
    }

    /// Adds the writes of an order's outcome.
    pub fn note(&self, transaction: &mut Pipeline, worker: usize, claim: &Claim, fate: Fate) {
        if fate == Fate::Sold {
            transaction.rpush(self.key("journal"), &claim.text);
        }
        transaction.hset(self.key("orders"), &claim.order.id, fate.name());
        transaction.lrem(self.claimed(worker), 1, &claim.text);
    }

    /// Removes an order that was decided before from this worker's list.
    pub fn cross_off(&mut self, worker: usize, claim: &Claim) -> RedisResult<()> {
        self.connection.lrem(self.claimed(worker), 1, &claim.text)
    }

    /// Puts an order back into the list, for any worker to process.
    pub fn give_back(&mut self, worker: usize, claim: &Claim) -> RedisResult<()> {
        pipe()
            .atomic()
            .lrem(self.claimed(worker), 1, &claim.text)
            .lpush(self.key("open"), &claim.text)
            .exec(&mut self.connection)
    }

    /// Puts all orders of a dead worker back into the list, and returns their ids.
    pub fn hand_out_again(&mut self, dead: usize) -> RedisResult<Vec<String>> {
        let (open, claimed) = (self.key("open"), self.claimed(dead));
        let mut ids = Vec::new();
        loop {
            let text: Option<String> =
                self.connection.lmove(&claimed, &open, Direction::Right, Direction::Left)?;
            match text {
                Some(text) => ids.push(order(&text).id),
                None => return Ok(ids),
            }
        }
    }

    /// How many orders are decided.
    pub fn decided(&mut self) -> RedisResult<usize> {
        self.connection.hlen(self.key("orders"))
    }

    /// The same; and sets the lifetime of the books to ten minutes again: they expire when no worker asks any
    /// more.
    pub fn progress(&mut self, workers: usize) -> RedisResult<usize> {
        let names = ["open", "orders", "journal"];
        let keys = names.map(|it| self.key(it)).into_iter().chain((0..workers).map(|it| self.claimed(it)));
        let mut pipeline = pipe();
        for key in keys {
            pipeline.expire(key, LIFE as i64).ignore();
        }
        let (decided,) = pipeline.hlen(self.key("orders")).query(&mut self.connection)?;
        Ok(decided)
    }

    /// Returns what the books say at the end about these products.
    pub fn close(&mut self, stock: &BTreeMap<String, i64>) -> RedisResult<Closing> {
        let mut left = BTreeMap::new();
        for product in stock.keys() {
            left.insert(product.clone(), self.connection.get(self.stock(product))?);
        }
        let (fates, sales): (_, Vec<String>) = pipe()
            .hgetall(self.key("orders"))
            .lrange(self.key("journal"), 0, -1)
            .query(&mut self.connection)?;
        Ok(Closing { left, fates, sales: sales.iter().map(|it| order(it)).collect() })
    }
}

fn text(order: &Order) -> String {
    serde_json::to_string(order).expect("an order is plain text and a number")
}

fn order(text: &str) -> Order {
    serde_json::from_str(text).expect("the lists hold only what text() wrote")
}
