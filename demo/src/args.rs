//! The command line.

use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
A flash sale by 4 processes of 8 threads, without a lock and with each way of not overselling.

usage: flash_sale [--json] [--seed N | ORDERS.csv]

  --json       one JSON object a line instead of the table
  --seed N     6,000 orders drawn by chance from this seed (default: 42)
  ORDERS.csv   the orders: a file with the columns id, customer, product, quantity

REDIS_URL names a server to use instead of a private one; a RedLock has five private ones always.";

/// The seed of the orders where nothing else is asked for.
const SEED: u64 = 42;

/// Where the orders come from.
#[derive(Debug)]
pub enum Orders {
    Drawn(u64),
    File(PathBuf),
}

/// What was asked for.
#[derive(Debug)]
pub struct Args {
    pub help: bool,
    pub json: bool,
    pub orders: Orders,
}

/// Reads the words behind the program's name.
pub fn read(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let (mut help, mut json, mut orders) = (false, false, None);
    while let Some(word) = words.next() {
        let source = match word.as_str() {
            "--help" | "-h" => {
                help = true;
                continue;
            }
            "--json" => {
                json = true;
                continue;
            }
            "--seed" => {
                let seed = words.next().and_then(|seed| seed.parse().ok());
                Orders::Drawn(seed.ok_or("--seed needs a whole number; see --help")?)
            }
            option if option.starts_with('-') => {
                return Err(format!("there is no option {option}; see --help"));
            }
            file => Orders::File(file.into()),
        };
        if orders.replace(source).is_some() {
            return Err("one seed or one file of orders, and not two; see --help".to_owned());
        }
    }
    Ok(Args { help, json, orders: orders.unwrap_or(Orders::Drawn(SEED)) })
}
