//! The command line.

use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
A flash sale by 4 processes of 8 threads, without a lock and with each way of not overselling.

usage: flash_sale [--json] [[--seed N] [--orders N] | ORDERS.csv]

  --json       one JSON object a line instead of the table
  --seed N     draws the orders by chance from this seed (default: 42)
  --orders N   draws so many (1 to 100000; default: 6000)
  ORDERS.csv   the orders: a file with the columns id, customer, product, quantity

REDIS_URL names a server to use instead of a private one; a RedLock has five private ones always.";

/// The default seed of the orders.
const SEED: u64 = 42;
/// How many orders are drawn by default, and at most.
const COUNT: usize = 6_000;
const MOST: usize = 100_000;

/// Where the orders come from.
#[derive(Debug)]
pub enum Orders {
    Drawn { seed: u64, count: usize },
    File(PathBuf),
}

/// The parsed arguments.
#[derive(Debug)]
pub struct Args {
    pub help: bool,
    pub json: bool,
    pub orders: Orders,
}

/// Parses the arguments after the program's name.
pub fn read(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let (mut help, mut json, mut file) = (false, false, None);
    let (mut seed, mut count) = (None, None);
    while let Some(word) = words.next() {
        let taken = match word.as_str() {
            "--help" | "-h" => {
                help = true;
                false
            }
            "--json" => {
                json = true;
                false
            }
            "--seed" => {
                let number = words.next().and_then(|seed| seed.parse().ok());
                seed.replace(number.ok_or("--seed needs a whole number; see --help")?).is_some()
            }
            "--orders" => {
                let number = words.next().and_then(|n| n.parse().ok()).filter(|n| (1..=MOST).contains(n));
                count.replace(number.ok_or("--orders needs a number from 1 to 100000; see --help")?).is_some()
            }
            option if option.starts_with('-') => {
                return Err(format!("there is no option {option}; see --help"));
            }
            name => file.replace(name.into()).is_some(),
        };
        if taken {
            return Err(format!(
                "{word}: one seed, one number or one file of orders, and not two; see --help"
            ));
        }
    }
    let drawn = seed.is_some() || count.is_some();
    let orders = match file {
        Some(_) if drawn => {
            return Err("orders are drawn or read from a file, and not both; see --help".to_owned());
        }
        Some(file) => Orders::File(file),
        None => Orders::Drawn { seed: seed.unwrap_or(SEED), count: count.unwrap_or(COUNT) },
    };
    Ok(Args { help, json, orders })
}
