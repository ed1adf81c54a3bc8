//! A flash sale: four processes of eight threads sell to more customers than there are goods, once without a
//! lock and once with each way of not overselling, and count the damage.
//!
//! ```text
//! cargo run --release --package demo -- [--json] [[--seed N] [--orders N] | ORDERS.csv]
//! ```
//!
//! It starts a Redis server of its own, or uses the one that `REDIS_URL` names, under a prefix of its own
//! that it removes in the end; the RedLock has five of its own in any case. The exit code is 0 if every
//! promise was kept, 1 if one was not, 2 if the arguments or the file of orders are invalid.

mod args;
mod audit;
mod books;
mod crew;
mod desk;
mod drawn;
mod message;
mod order;
mod place;
mod report;
mod run;
mod table;
mod trace;
mod variant;
mod worker;

use std::process::ExitCode;

use args::Orders;
use redis_concurrent_testkit::is_role;

/// An error that stops the demo; its message is all that matters.
type Failure = Box<dyn std::error::Error + Send + Sync>;

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
    let orders = match &args.orders {
        Orders::Drawn { seed, count } => Ok(drawn::orders(*seed, *count)),
        Orders::File(file) => order::read(file),
    };
    let orders = match orders {
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
