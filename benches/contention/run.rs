//! Runs the workloads that the arguments ask for.

mod args;
mod bare;
mod bare_peer;
mod children;
mod clock;
mod contended;
mod handoff;
mod limiter;
mod linger;
mod list_peer;
mod memory;
mod multi;
mod names;
mod pair;
mod peer;
mod pin;
mod quorum;
mod readers;
mod recorder;
mod renewal;
mod report;
mod row;
mod server;
mod signals;
mod starts;
mod stats;
mod stock;
mod uncontended;
mod updates;

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use args::{Args, LocalHandoff, Workload};
use contended::Crowd;
use row::Row;
use server::BY_UNIX_SOCKET;

pub fn main() -> ExitCode {
    match play().and_then(|played| if played { Ok(()) } else { measure() }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// In a child: plays its role. Returns whether this process is a child.
fn play() -> Result<bool, Box<dyn Error>> {
    Ok(contended::play()?
        || handoff::play()?
        || renewal::play()?
        || signals::play()?
        || starts::play()?
        || linger::play()?)
}

fn measure() -> Result<(), Box<dyn Error>> {
    let args = Args::parse(std::env::args().skip(1))?;
    if args.pinned {
        pin::to_one_core()?;
    }
    BY_UNIX_SOCKET.store(args.by_unix_socket, Ordering::Relaxed);
    for workload in &args.workloads {
        match workload {
            Workload::Uncontended => uncontended(&args)?,
            Workload::Reentrancy => print(&args, *workload, Row::default(), uncontended::reentry(&args)?)?,
            Workload::Contended => contended(&args)?,
            Workload::Handoff => {
                let like = Row { processes: 2, hold_us: Some(args.hold_us(*workload)), ..Row::default() };
                print(&args, *workload, like, handoff::run(&args)?)?;
            }
            Workload::Renewal => print(&args, *workload, Row::default(), renewal::run(&args)?)?,
            Workload::Names => print(&args, *workload, Row::default(), names::run(&args)?)?,
            Workload::Writer => print_own(&args, *workload, "read-write", readers::writer(&args)?)?,
            Workload::Downgrade => print_own(&args, *workload, "read-write", readers::downgrade(&args)?)?,
            Workload::Signal => print_own(&args, *workload, "condition", signals::run(&args)?)?,
            Workload::Latch => print_own(&args, *workload, "latch", starts::latch(&args)?)?,
            Workload::Stock => print_own(&args, *workload, "inventory", stock::run(&args)?)?,
            Workload::Barrier => print_own(&args, *workload, "barrier", starts::barrier(&args)?)?,
            Workload::Limiter => {
                for (kind, rate) in limiter::RATES {
                    print_own(&args, *workload, kind, limiter::run(&args, rate)?)?;
                }
            }
            Workload::Multi => {
                print_own(&args, *workload, "of one client", multi::of_clients(&args, 1)?)?;
                print_own(&args, *workload, "of ten clients", multi::of_clients(&args, multi::NAMES)?)?;
            }
            Workload::Linger => print_own(&args, *workload, "simple", linger::run(&args)?)?,
            Workload::Redlock => print_own(&args, *workload, "redlock", quorum::run(&args)?)?,
        }
    }
    Ok(())
}

fn uncontended(args: &Args) -> Result<(), Box<dyn Error>> {
    for threads in &args.threads {
        let name = |i: usize| format!("bench:locks:{i}");
        let rounds = match (*threads, args.simple()) {
            (1, true) => uncontended::alone(args, |c| c.simple_lock(&name(1)))?,
            (1, false) => uncontended::alone(args, |c| c.reentrant_lock(&name(1)))?,
            (n, true) => uncontended::together(args, n, |c, i| c.simple_lock(&name(i)))?,
            (n, false) => uncontended::together(args, n, |c, i| c.reentrant_lock(&name(i)))?,
        };
        print(
            args,
            Workload::Uncontended,
            Row { threads: *threads, connections: args.connections, ..Row::default() },
            rounds,
        )?;
    }
    Ok(())
}

/// Runs all requested configurations, one after another in each round, so that they can be compared.
fn contended(args: &Args) -> Result<(), Box<dyn Error>> {
    let mut crowds = Vec::new();
    for local_handoff in &args.local_handoffs {
        for processes in &args.processes {
            for threads in &args.threads {
                let like = Row {
                    processes: *processes,
                    threads: *threads,
                    hold_us: Some(args.hold_us(Workload::Contended)),
                    local_handoff_us: if let LocalHandoff::Us(us) = local_handoff { Some(*us) } else { None },
                    fair: *local_handoff == LocalHandoff::Fair,
                    ..Row::default()
                };
                crowds.push((Crowd::gather(args, *processes, *threads, *local_handoff)?, like, Vec::new()));
            }
        }
    }
    for _ in 0..args.rounds {
        let mut first = None;
        for (crowd, _, rounds) in &mut crowds {
            let mut row = crowd.round()?;
            let first = *first.get_or_insert(row.acquisitions_per_s);
            row.ratio_to_first = row.acquisitions_per_s.zip(first).map(|(a, b)| a / b);
            rounds.push(row);
        }
    }
    for (_, like, rounds) in crowds {
        print(args, Workload::Contended, like, rounds)?;
    }
    Ok(())
}

/// Prints the rounds of a workload that has a kind of its own, and whose rows say how many processes take
/// part.
fn print_own(args: &Args, workload: Workload, kind: &str, rounds: Vec<Row>) -> Result<(), Box<dyn Error>> {
    let processes = rounds.first().map_or(1, |row| row.processes);
    print(args, workload, Row { kind: kind.to_owned(), processes, ..Row::default() }, rounds)
}

/// Prints the rounds as one row, with the description in `like`.
fn print(args: &Args, workload: Workload, like: Row, rounds: Vec<Row>) -> Result<(), Box<dyn Error>> {
    let figures = Row::of(&rounds)?;
    let row = Row {
        workload: workload.name().to_owned(),
        kind: if like.kind.is_empty() { args.lock.name().to_owned() } else { like.kind },
        pin: if args.pinned { "same" } else { "none" }.to_owned(),
        rounds: rounds.len(),
        seconds: args.seconds,
        processes: like.processes.max(1),
        threads: like.threads.max(1),
        connections: like.connections,
        hold_us: like.hold_us,
        local_handoff_us: like.local_handoff_us,
        fair: like.fair,
        ..figures
    };
    row.print(args.json)?;
    Ok(())
}
