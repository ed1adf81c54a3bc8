//! A unit is reserved and cancelled: two decisions, compared with the same two scripts on a bare socket.

use std::error::Error;

use redis_concurrent::inventory::Order;
use redis_concurrent::{Client, Inventory};

use super::args::Args;
use super::clock::{cpu, now};
use super::pair::Pair;
use super::row::Row;
use super::server::Watched;
use super::stats::median;

/// Consecutive pairs of one side: so few that other load on the machine affects both sides alike.
const BATCH: usize = 50;

/// One thread alternates between the library and the same scripts.
pub(crate) fn run(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let server = Watched::start()?;
    let client = Client::connect(&server.url())?;
    let inventory = client.inventory("bench:sale:1");
    for inventory in [&inventory, &client.inventory("bench:floor:1")] {
        inventory.add_stock("tee", 1_000)?;
    }
    let mut floor = Pair::of(server.redis.port(), |client| pair(&client.inventory("bench:floor:1")))?;
    (0..args.rounds).map(|_| round(args, &client, &inventory, &mut floor)).collect()
}

fn pair(inventory: &Inventory) -> Result<(), redis_concurrent::Error> {
    inventory.try_reserve(&Order::of("tee", 1))?.map_or(Ok(()), |reservation| reservation.cancel())
}

fn round(
    args: &Args,
    client: &Client,
    inventory: &Inventory,
    floor: &mut Pair,
) -> Result<Row, Box<dyn Error>> {
    let end = now() + (args.seconds * 1e9) as u64;
    let (mut library, mut bare, mut cpus) = (Vec::new(), Vec::new(), [0, 0]);
    let mut requests = 0;
    while library.is_empty() || now() < end {
        let before = client.request_count();
        let (t0, c0) = (now(), cpu());
        for _ in 0..BATCH {
            pair(inventory)?;
        }
        let (t1, c1) = (now(), cpu());
        for _ in 0..BATCH {
            floor.run()?;
        }
        let (t2, c2) = (now(), cpu());
        library.push((t1 - t0) as f64 / 1e3 / BATCH as f64);
        bare.push((t2 - t1) as f64 / 1e3 / BATCH as f64);
        cpus = [cpus[0] + c1 - c0, cpus[1] + c2 - c1];
        requests += client.request_count() - before;
    }
    let pairs = (library.len() * BATCH) as f64;
    let (library, bare) = (median(&library), median(&bare));
    Ok(Row {
        acquisitions_per_s: library.map(|us| 1e6 / us),
        commands_per_acquisition: Some(requests as f64 / pairs),
        pair_us: library,
        floor_us: bare,
        ratio_floor: library.zip(bare).map(|(a, b)| a / b),
        client_cpu_us: Some(cpus[0] as f64 / 1e3 / pairs),
        floor_client_cpu_us: Some(cpus[1] as f64 / 1e3 / pairs),
        ..Row::default()
    })
}
