//! Ten lamps for a hundred customers: an inventory, before any database.
//!
//! `cargo run --example flash_inventory`, on the server that `REDIS_URL` names or on a private one. The
//! customers come all at once, through clients that are like processes to Redis. Some fail to pay, and their
//! lamp goes to the next customer. Two of them order twice.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::{env, thread, time::Duration};

use redis_concurrent::inventory::Order;
use redis_concurrent::{Client, Error, ErrorKind, Inventory};
use redis_concurrent_testkit::RedisServer;

const LAMPS: u64 = 10;
const CUSTOMERS: usize = 100;

type Failure = Box<dyn std::error::Error>;

/// The outcomes of the customers' attempts.
#[derive(Default)]
struct Count {
    bought: AtomicUsize,
    failed: AtomicUsize,
    sold_out: AtomicUsize,
}

fn main() -> Result<(), Failure> {
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let name = format!("lamps-{}", std::process::id());
    let office = Client::connect(&url)?.inventory(&name);
    office.add_stock("lamp", LAMPS)?;

    let clients = [Client::connect(&url)?, Client::connect(&url)?, Client::connect(&url)?];
    let count = Count::default();
    // One order is there before the rush, to be repeated after it.
    serve(&clients[0].inventory(&name), 0, &count)?;
    thread::scope(|scope| {
        let customers: Vec<_> = (1..CUSTOMERS)
            .zip(clients.iter().cycle())
            .map(|(i, client)| {
                let (inventory, count) = (client.inventory(&name), &count);
                scope.spawn(move || serve(&inventory, i, count))
            })
            .collect();
        customers.into_iter().try_for_each(|it| it.join().expect("a customer does not panic"))
    })?;

    let stock = office.stock("lamp")?;
    let [bought, failed, sold_out] =
        [count.bought, count.failed, count.sold_out].map(AtomicUsize::into_inner);
    println!("{bought} of {CUSTOMERS} bought a lamp, {failed} could not pay, {sold_out} found none");
    println!("{} sold + {} reserved + {} left = {LAMPS}", stock.sold, stock.reserved, stock.available);
    assert_eq!((stock.sold as usize, stock.reserved), (bought, 0));
    // The same order again, as from a message that is delivered twice: it is not sold twice.
    let again = office.try_reserve(&Order::of("lamp", 1).id("order-0"));
    assert!(again.is_err_and(|error| error.kind() == ErrorKind::Conflict));
    office.delete()?;
    Ok(())
}

/// Serves a customer: a lamp is reserved while the customer pays, and each can have at most one.
fn serve(inventory: &Inventory, i: usize, count: &Count) -> Result<(), Error> {
    let order = Order::of("lamp", 1).id(&format!("order-{i}")).customer(&format!("customer-{i}"), 1);
    let Some(reservation) = inventory.try_reserve(&order)? else {
        count.sold_out.fetch_add(1, SeqCst);
        return Ok(());
    };
    thread::sleep(Duration::from_millis(3)); // the customer pays, or tries to
    // If the reservation is dropped, or its process dies, the lamp is on sale again.
    let count = if i % 4 != 3 { reservation.commit().map(|()| &count.bought)? } else { &count.failed };
    count.fetch_add(1, SeqCst);
    Ok(())
}
