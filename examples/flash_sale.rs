//! A flash sale: four processes of eight threads sell what is there to more customers than it is
//! enough for, once without a lock and once in each way of not overselling, and count the damage.
//!
//! ```text
//! cargo run --release --example flash_sale -- [--json] [ORDERS.csv]
//! ```
//!
//! It starts a Redis server of its own, or uses the one that `REDIS_URL` names, under a prefix of
//! its own that it removes in the end; the RedLock has five of its own in any case. The exit code
//! is 0 if every promise was kept, 1 if one was not, 2 if the arguments or the file of orders are
//! no good.

/// The parts, from the command line to the table.
mod flash_sale {
    pub mod args;
    pub mod audit;
    pub mod books;
    pub mod crew;
    pub mod desk;
    pub mod message;
    pub mod order;
    pub mod place;
    pub mod report;
    pub mod run;
    pub mod table;
    pub mod trace;
    pub mod variant;
    pub mod worker;

    /// What stops the demo: it says why, and nothing else has to be known about it.
    pub type Failure = Box<dyn std::error::Error + Send + Sync>;
}

use std::process::ExitCode;

use flash_sale::{args, order, report, run, worker};
use redis_concurrent_testkit::is_role;

/// The orders of this repository.
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/orders.csv");

fn main() -> ExitCode {
    if is_role(worker::ROLE) {
        return worker::main();
    }
    let args = match args::read(std::env::args().skip(1)) {
        Ok(args) if args.help => {
            println!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(args) => args,
        Err(why) => return bad(why),
    };
    let file = args.file.clone().unwrap_or_else(|| SHIPPED.into());
    let orders = match order::read(&file) {
        Ok(orders) => orders,
        Err(why) => return bad(why),
    };
    let runs = run::all(&orders, |event| report::show(&args, &orders, event));
    match runs {
        Ok(runs) => report::conclude(&args, &runs),
        Err(why) => {
            eprintln!("flash_sale: {why}");
            ExitCode::FAILURE
        }
    }
}

fn bad(why: impl std::fmt::Display) -> ExitCode {
    eprintln!("flash_sale: {why}");
    ExitCode::from(2)
}
