//! Ten locks acquired as one, compared with the same ten one after another.

use std::error::Error;
use std::time::Duration;

use redis_concurrent::{Client, Member, MultiLock, ReentrantLock};

use super::args::Args;
use super::clock::now;
use super::row::Row;
use super::server::Watched;

pub(crate) const NAMES: usize = 10;

/// Ten names, spread evenly over `clients` clients: locked and unlocked as one, alternating with one after
/// another.
pub(crate) fn of_clients(args: &Args, clients: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut server = Watched::start()?;
    let clients: Vec<_> = (0..clients).map(|_| Client::connect(&server.url())).collect::<Result<_, _>>()?;
    let locks: Vec<ReentrantLock> =
        (0..NAMES).map(|i| clients[i % clients.len()].reentrant_lock(&format!("bench:multi:{i}"))).collect();
    let members: Vec<&dyn Member> = locks.iter().map(|lock| lock as &dyn Member).collect();
    let it = MultiLock::new(&members);
    let as_one = || it.lock()?.unlock();
    let in_turn = || -> Result<(), redis_concurrent::Error> {
        let guards = locks.iter().map(ReentrantLock::lock).collect::<Result<Vec<_>, _>>()?;
        guards.into_iter().rev().try_for_each(|guard| guard.unlock())
    };
    // From here on the server knows the scripts, and the connections are open.
    as_one()?;
    in_turn()?;
    let requests = || clients.iter().map(Client::request_count).sum::<u64>();
    let limit = Duration::from_secs_f64(args.seconds).as_nanos() as u64;
    let mut rows = Vec::new();
    for _ in 0..args.rounds {
        let (mut sent, mut inside, mut took, mut one_by_one, mut pairs) = (0, 0.0, 0, 0, 0_u64);
        let began = now();
        while pairs == 0 || now() - began < limit {
            const TURN: u64 = 100;
            server.reset_stats()?;
            let (before, from) = (requests(), now());
            (0..TURN).try_for_each(|_| as_one())?;
            took += now() - from;
            sent += requests() - before;
            inside += server.script_us()?;
            let from = now();
            (0..TURN).try_for_each(|_| in_turn())?;
            one_by_one += now() - from;
            pairs += TURN;
        }
        let each = |total: f64| Some(total / pairs as f64);
        rows.push(Row {
            processes: 1,
            names: Some(NAMES as u64),
            commands_per_acquisition: each(sent as f64),
            pair_us: each(took as f64 / 1e3),
            one_by_one_us: each(one_by_one as f64 / 1e3),
            ratio_one_by_one: Some(took as f64 / one_by_one as f64),
            inside_redis_us: each(inside),
            ..Row::default()
        });
    }
    Ok(rows)
}
