//! The output: an introduction, a line for each run, the table, the verdict.

use std::process::ExitCode;

use serde::Serialize;

use super::args::{Args, Orders};
use super::audit::CustomerWaits;
use super::crew::PROCESSES;
use super::order::{Order, stock};
use super::run::{Event, Run};
use super::table::{counted, grouped, table};
use super::variant::Variant;
use super::worker::{LEASE, THINK, THREADS};

const HEAD: [&str; 9] = [
    "variant",
    "sold",
    "oversold",
    "lost updates",
    "duplicates",
    "orders/s",
    "requests/order",
    "longest wait",
    "recovery",
];

const LEGEND: &str = "\
sold            pieces sold
oversold        pieces sold that never were there: max(0, sold - initial), product by product
lost updates    pieces that the books lost track of: |sold - (initial - left)|, product by product
duplicates      sales to a customer that had bought this product before, or of an order sold before
requests/order  requests that the locks sent to Redis, renewals and heartbeats included, as counted by
                Client::requests(); the sale's own four an order (claim, two reads, write) are not, but
                of optimistic updates their reads and writes, in every try
longest wait    the longest time that a thread waited for a lock, or for its update to be done
recovery        from the kill until the inventory lock that the dead process held was granted to another";

/// One run as a line of JSON.
#[derive(Serialize)]
struct Line {
    variant: &'static str,
    sold: i64,
    oversold: i64,
    lost_updates: i64,
    duplicates: usize,
    orders_per_s: f64,
    commands_per_order: f64,
    longest_wait_ms: f64,
    recovery_ms: Option<f64>,
}

/// Reports events as they happen.
pub fn show(args: &Args, orders: &[Order], event: Event<'_>) {
    match event {
        Event::Begin if !args.json => println!("{}", before(args, orders)),
        Event::Done(run) if args.json => println!("{}", json(run)),
        Event::Done(run) => println!("{}", course(run)),
        Event::Begin => {}
    }
}

/// Prints the table and the verdict, and returns the exit code that says the same.
pub fn conclude(args: &Args, runs: &[Run]) -> ExitCode {
    let complaints: Vec<String> =
        runs.iter().flat_map(|run| complaints(run, matches!(args.orders, Orders::Drawn { .. }))).collect();
    if !args.json {
        let rows: Vec<_> = runs.iter().map(row).collect();
        println!("\n{}\n\n{LEGEND}\n", table(&HEAD, 1, &rows));
        if complaints.is_empty() {
            println!("{}", verdict(runs));
        }
    }
    if complaints.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("FAILED: {}.", complaints.join("; "));
    ExitCode::FAILURE
}

fn before(args: &Args, orders: &[Order]) -> String {
    let stock = stock(orders);
    let source = match &args.orders {
        Orders::Drawn { seed, .. } => format!("seed {seed}"),
        Orders::File(file) => file.display().to_string(),
    };
    let ordered: u64 = orders.iter().map(|it| u64::from(it.quantity)).sum();
    let there: i64 = stock.values().sum();
    let mut text = format!(
        "A flash sale: {} from {source}
for {} pieces of {}; there are {}.

{PROCESSES} processes of {THREADS} threads work them off. Each order takes its customer's lock and looks
whether the customer has bought this product before, which is refused. Within that lock it takes its
product's, reads what is left, thinks for {THINK:?}, and writes what is left and the sale in one
transaction. A lease is {LEASE:?}. The last two runs take no locks. One run each:

",
        counted(orders.len(), "order"),
        grouped(ordered),
        counted(stock.len(), "product"),
        grouped(there.unsigned_abs()),
    );
    for variant in Variant::ALL {
        text += &format!("  {:<14}  {}\n", variant.name(), variant.about());
    }
    text
}

/// Describes how a run went, with every order accounted for.
fn course(run: &Run) -> String {
    let fates = &run.fates;
    let decided = fates.sold + fates.refused + fates.sold_out;
    let mut text = format!(
        "{:<14}  {:>5.1} s  {} = {} sold + {} refused + {} sold out",
        run.variant.name(),
        run.seconds,
        counted(decided, "order"),
        grouped(fates.sold as u64),
        grouped(fates.refused as u64),
        grouped(fates.sold_out as u64),
    );
    let mut add = |line: String| text += &format!("\n{:25}{line}", "");
    // A RedLock either finds its lock free on a server, or does not get it there.
    if run.variant.locks() && run.variant != Variant::RedLock {
        let CustomerWaits { all, strangers } = run.customer_waits;
        let times = format!("a customer's lock was busy {},", counted(all, "time"));
        add(match strangers {
            0 => format!("{times} always with an order of that customer"),
            n => format!("{times} {n} of them with somebody else's order"),
        });
    }
    if let Some(death) = &run.death {
        add(format!("process {} was killed while it held the lock of {:?};", death.pid, death.product));
        add(format!("its {} were done by the others", counted(death.orders.len(), "open order")));
    } else if run.variant.kills() {
        add("nobody was killed: the orders were done before".into());
    }
    if run.given_back > 0 {
        add(format!("{} begun anew because a lease ended", counted(run.given_back, "order")));
    }
    text
}

fn row(run: &Run) -> Vec<String> {
    let damage = &run.damage;
    let pieces = |n: i64| grouped(n.unsigned_abs());
    let guarded = run.variant != Variant::None;
    let or_dash = |there: bool, text: String| if there { text } else { "-".to_owned() };
    vec![
        run.variant.name().to_owned(),
        pieces(damage.sold),
        pieces(damage.oversold),
        pieces(damage.lost_updates),
        grouped(damage.duplicates as u64),
        grouped(run.orders_per_s.round() as u64),
        or_dash(guarded, format!("{:.1}", run.requests_per_order)),
        or_dash(guarded && run.variant != Variant::Inventory, millis(run.longest_wait)),
        run.recovery.map_or("-".to_owned(), millis),
    ]
}

fn millis(ms: f64) -> String {
    format!("{} ms", grouped(ms.round() as u64))
}

fn json(run: &Run) -> String {
    let tenth = |number: f64| (number * 10.0).round() / 10.0;
    let line = Line {
        variant: run.variant.name(),
        sold: run.damage.sold,
        oversold: run.damage.oversold,
        lost_updates: run.damage.lost_updates,
        duplicates: run.damage.duplicates,
        orders_per_s: tenth(run.orders_per_s),
        commands_per_order: (run.requests_per_order * 100.0).round() / 100.0,
        longest_wait_ms: tenth(run.longest_wait),
        recovery_ms: run.recovery.map(tenth),
    };
    serde_json::to_string(&line).expect("a line is plain text and numbers")
}

/// Returns the promises that were not kept. Only this repository's orders are known to do damage without a
/// lock, and to be enough for a worker to be killed.
fn complaints(run: &Run, shipped: bool) -> Vec<String> {
    let (damage, name) = (&run.damage, run.variant.name());
    let damages = [
        ("oversold", damage.oversold as usize),
        ("lost updates", damage.lost_updates as usize),
        ("duplicates", damage.duplicates),
    ];
    let mut complaints = Vec::new();
    for (what, number) in damages {
        if run.variant == Variant::None {
            if shipped && number == 0 {
                complaints.push(format!("{name}: no {what}, though there was no lock"));
            }
        } else if number > 0 {
            complaints.push(format!("{name}: {what}: {number}"));
        }
    }
    if run.fates.unaccounted > 0 {
        complaints.push(format!("{name}: {} not accounted for", counted(run.fates.unaccounted, "order")));
    }
    if run.customer_waits.strangers > 0 {
        let waits = counted(run.customer_waits.strangers, "wait");
        complaints.push(format!("{name}: {waits} for a customer's lock behind somebody else's order"));
    }
    if run.variant.kills() && run.recovery.is_none() && (shipped || run.death.is_some()) {
        complaints.push(format!("{name}: no recovery from a kill was seen"));
    }
    complaints
}

fn verdict(runs: &[Run]) -> String {
    let pieces = |n: i64| grouped(n.unsigned_abs());
    let damage = runs.iter().find(|it| it.variant == Variant::None).map(|it| &it.damage);
    let without = damage.map_or(String::new(), |it| {
        format!(
            "without a lock {} pieces oversold, {} lost from the books, {}; ",
            pieces(it.oversold),
            pieces(it.lost_updates),
            counted(it.duplicates, "duplicate")
        )
    });
    format!("OK: {without}in every other way none.")
}
