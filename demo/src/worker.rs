//! A worker process: eight threads that take orders and process them.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redis_concurrent::optimistic::Outcome;
use redis_concurrent::{Error, ErrorKind, Lock, LockGuard};
use redis_concurrent_testkit::{hear_parent, tell_parent};

use super::Failure;
use super::books::{Books, Claim, Fate, History};
use super::desk::{Desk, inventory};
use super::message::{Done, Message, Task};
use super::trace::{Meter, Trace, now, waited};
use super::variant::Variant;

/// The role that makes a process a worker.
pub const ROLE: &str = "flash_sale_worker";
/// The environment variable with its [`Task`].
pub const TASK: &str = "FLASH_SALE_TASK";
/// How many threads a process has.
pub const THREADS: usize = 8;
/// How long a lock of a dead process stays held.
pub const LEASE: Duration = Duration::from_secs(3);
/// The time between the read and the write: what a check of an address, say, or of a card would take.
pub const THINK: Duration = Duration::from_millis(2);
/// The number of attempts at an update. At times thirty-two threads want the same product, and one of them
/// gets it.
const TRIES: u32 = 10_000;
/// How long to wait for orders that may come back, when there are none.
const IDLE: Duration = Duration::from_millis(5);

struct Worker {
    task: Task,
    desk: Desk,
    /// The longest wait so far, in microseconds.
    longest_wait: AtomicU64,
    /// Orders taken.
    taken: AtomicUsize,
    /// Whether a thread holds its locks and waits for the kill.
    stands_still: AtomicBool,
    /// Whether a thread has failed: the others stop, too.
    failed: AtomicBool,
}

/// What a thread returns.
#[derive(Default)]
struct Notes {
    traces: Vec<Trace>,
    given_back: usize,
}

/// Runs the process.
pub fn main() -> ExitCode {
    let message = match work() {
        Ok(done) => Message::Done(done),
        Err(why) => Message::Failed(why.to_string()),
    };
    let failed = matches!(message, Message::Failed(_));
    if tell(&message).is_err() || failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn tell(message: &Message) -> Result<(), Failure> {
    Ok(tell_parent(&serde_json::to_string(message)?)?)
}

fn work() -> Result<Done, Failure> {
    let task: Task = serde_json::from_str(&std::env::var(TASK)?)?;
    let worker = Worker {
        desk: Desk::open(&task, &Meter)?,
        longest_wait: AtomicU64::new(0),
        taken: AtomicUsize::new(0),
        stands_still: AtomicBool::new(false),
        failed: AtomicBool::new(false),
        task,
    };
    let books = (0..THREADS)
        .map(|_| Books::open(&worker.task.url, &worker.task.prefix))
        .collect::<Result<Vec<_>, _>>()?;
    tell(&Message::Ready)?;
    if hear_parent()?.is_none() {
        return Err("the parent has gone".into());
    }
    let notes = thread::scope(|scope| {
        let threads: Vec<_> = books.into_iter().map(|books| scope.spawn(|| worker.run(books))).collect();
        threads.into_iter().map(|it| it.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let notes: Result<Vec<Notes>, Failure> = notes;
    let longest_wait = worker.longest_wait.load(Ordering::Relaxed);
    let mut done = Done { longest_wait, ..Done::default() };
    for notes in notes? {
        done.given_back += notes.given_back;
        done.traces.extend(notes.traces);
    }
    done.requests = worker.desk.request_count();
    worker.desk.close()?;
    Ok(done)
}

impl Worker {
    /// Runs one thread.
    fn run(&self, books: Books) -> Result<Notes, Failure> {
        let notes = self.take_orders(books);
        if notes.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        notes
    }

    /// Processes orders until all are decided. An empty list is not enough, as a dead worker's orders come
    /// back.
    fn take_orders(&self, mut books: Books) -> Result<Notes, Failure> {
        let mut notes = Notes::default();
        while !self.failed.load(Ordering::Relaxed) {
            if let Some(claim) = books.claim(self.task.worker)? {
                self.taken.fetch_add(1, Ordering::Relaxed);
                self.do_order(&mut books, &claim, &mut notes)?;
            } else if books.decided()? >= self.task.orders {
                break;
            } else {
                thread::sleep(IDLE);
            }
        }
        Ok(notes)
    }

    /// Processes one order.
    fn do_order(&self, books: &mut Books, claim: &Claim, notes: &mut Notes) -> Result<(), Failure> {
        match self.task.variant {
            Variant::Optimistic => self.update(books, claim, notes),
            Variant::Inventory => self.reserve(books, claim, notes),
            _ => self.under_locks(books, claim, notes),
        }
    }

    /// Processes an order under its customer's lock, and within it under its product's.
    fn under_locks(&self, books: &mut Books, claim: &Claim, notes: &mut Notes) -> Result<(), Failure> {
        let order = &claim.order;
        let customer_lock = self.desk.lock(&format!("customer:{}", order.customer));
        let inventory_lock = self.desk.lock(&format!("stock:{}", order.product));
        let called = now();
        let customer = self.take(customer_lock.as_deref())?;
        let granted = now();
        let waited = customer.is_some() && waited();
        let history = books.history(order)?;
        let stock = self.take(inventory_lock.as_deref())?;
        let stock_granted = now();
        let left = books.left(order)?;

        let fate = history.fate(order, left);
        if history.decided {
            books.cross_off(self.task.worker, claim)?;
        } else {
            if fate == Fate::Sold {
                self.think(&order.product)?;
            }
            if [&customer, &stock].into_iter().flatten().any(|guard| guard.is_lost()) {
                // What was read may no longer be true.
                books.give_back(self.task.worker, claim)?;
                notes.given_back += 1;
            } else {
                books.write(self.task.worker, claim, left, fate)?;
            }
        }

        give(stock)?;
        give(customer)?;
        let order = order.id.clone();
        notes.traces.push(Trace { order, called, granted, released: now(), waited, stock_granted });
        Ok(())
    }

    /// Makes the same reads and writes, which take effect only if nobody has meanwhile changed what was read.
    fn update(&self, books: &Books, claim: &Claim, notes: &mut Notes) -> Result<(), Failure> {
        let order = &claim.order;
        let (stock, [bought, decided]) = (books.stock(&order.product), books.asks_history(order));
        let called = now();
        let keys = [stock.as_str(), &books.bought(&order.customer)];
        self.desk.client.optimistic(&keys).max_attempts(TRIES).run(|read, write| {
            let history = History { bought: read.query(&bought)?, decided: read.query(&decided)? };
            let left = read.get(&stock)?;
            let fate = history.fate(order, left);
            if fate == Fate::Sold {
                thread::sleep(THINK);
            }
            books.take(write, order, left, fate);
            books.note(write, self.task.worker, claim, fate);
            Ok(Outcome::Commit(()))
        })?;
        self.has_waited(called);
        notes.traces.push(without_locks(claim, called));
        Ok(())
    }

    /// Reserves the pieces in the inventory, which has them, knows each buyer, and decides in one step.
    fn reserve(&self, books: &mut Books, claim: &Claim, notes: &mut Notes) -> Result<(), Failure> {
        let order = &claim.order;
        let wish = redis_concurrent::inventory::Order::of(&order.product, order.quantity.into())
            .id(&format!("{} {:?}", order.product, order.customer));
        let called = now();
        let fate = match inventory(&self.desk.client).try_reserve(&wish) {
            Ok(Some(reservation)) => {
                thread::sleep(THINK);
                reservation.commit()?;
                Fate::Sold
            }
            Ok(None) => Fate::SoldOut,
            // This customer's order for this product is in progress, or done.
            Err(error) if error.kind() == ErrorKind::Conflict => Fate::Refused,
            // More than there ever were in stock.
            Err(error) if error.kind() == ErrorKind::Refused => Fate::SoldOut,
            Err(error) => return Err(error.into()),
        };
        books.write_fate(self.task.worker, claim, fate)?;
        notes.traces.push(without_locks(claim, called));
        Ok(())
    }

    fn take(&self, lock: Option<&dyn Lock>) -> Result<Option<Box<dyn LockGuard>>, Error> {
        let called = now();
        let guard = lock.map(|it| it.lock()).transpose()?;
        self.has_waited(called);
        Ok(guard)
    }

    fn has_waited(&self, since: u64) {
        self.longest_wait.fetch_max(now() - since, Ordering::Relaxed);
    }

    /// Takes the time between the read and the write; the chosen thread of the victim stays here forever.
    fn think(&self, product: &str) -> Result<(), Failure> {
        let chosen = self.task.victim_after.is_some_and(|after| self.taken.load(Ordering::Relaxed) > after)
            && !self.stands_still.swap(true, Ordering::Relaxed);
        if !chosen {
            thread::sleep(THINK);
            return Ok(());
        }
        tell(&Message::Holding { product: product.to_owned(), requests: self.desk.request_count() })?;
        loop {
            thread::park();
        }
    }
}

fn without_locks(claim: &Claim, called: u64) -> Trace {
    let order = claim.order.id.clone();
    Trace { order, called, granted: called, released: now(), waited: false, stock_granted: called }
}

/// Releases a lock. An expired lease does not end the worker: the audit will show whether it did any harm. A
/// release whose outcome is unknown continues in the background.
fn give(guard: Option<Box<dyn LockGuard>>) -> Result<(), Error> {
    match guard.map(|it| it.unlock()) {
        Some(Err(error)) if !error.is_lease_lost() && !error.is_outcome_unknown() => Err(error),
        _ => Ok(()),
    }
}
