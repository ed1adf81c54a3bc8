//! Many names, one after another: what they leave behind.

use std::error::Error;

use redis_concurrent::Client;

use super::args::Args;
use super::clock::{cpu, now};
use super::memory::resident;
use super::row::Row;
use super::server::Watched;

/// One round: every name is locked and unlocked once. The first tenth of them is the warm-up, after which
/// nothing should grow any more.
pub(crate) fn run(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut server = Watched::start()?;
    let client = Client::connect(&server.url())?;
    let one = |i: usize| -> Result<(), redis_concurrent::Error> {
        let name = format!("bench:name:{i}");
        if args.simple() {
            client.simple_lock(&name).lock()?.unlock()
        } else {
            client.reentrant_lock(&name).lock()?.unlock()
        }
    };
    let run_up = args.names / 10;
    for i in 0..run_up {
        one(i)?;
    }
    let (memory, requests, begin, busy) = (resident()?, client.request_count(), now(), cpu());
    for i in run_up..args.names {
        one(i)?;
    }
    let counted = (args.names - run_up) as f64;
    let (took, busy) = ((now() - begin) as f64, (cpu() - busy) as f64);
    let grown = resident()? as f64 - memory as f64;
    let (_, endless) = server.keys()?;
    Ok(vec![Row {
        names: Some(args.names as u64),
        acquisitions_per_s: Some(counted / took * 1e9),
        commands_per_acquisition: Some((client.request_count() - requests) as f64 / counted),
        client_cpu_us: Some(busy / 1e3 / counted),
        rss_growth_bytes: Some(grown),
        keys_without_ttl: Some(endless as f64),
        ..Row::default()
    }])
}
