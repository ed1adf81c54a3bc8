//! The command line.

use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
A flash sale by 4 processes of 8 threads, without a lock and with each way of not overselling.

usage: flash_sale [--json] [ORDERS.csv]

  --json       one JSON object a line instead of the table
  ORDERS.csv   the orders: a file with the columns id, customer, product, quantity
               (default: examples/data/orders.csv)

REDIS_URL names a server to use instead of a private one; a RedLock has five private ones always.";

/// What was asked for.
#[derive(Debug, Default)]
pub struct Args {
    pub help: bool,
    pub json: bool,
    /// `None`: the orders of this repository.
    pub file: Option<PathBuf>,
}

/// Reads the words behind the program's name.
pub fn read(words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args::default();
    for word in words {
        match word.as_str() {
            "--help" | "-h" => args.help = true,
            "--json" => args.json = true,
            option if option.starts_with('-') => {
                return Err(format!("there is no option {option}; see --help"));
            }
            file if args.file.is_none() => args.file = Some(file.into()),
            second => return Err(format!("one file of orders, and not {second} too; see --help")),
        }
    }
    Ok(args)
}
