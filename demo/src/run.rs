//! The runs, one after another, and the result of each.

use indicatif::{ProgressBar, ProgressStyle};

use super::Failure;
use super::audit::{self, CustomerWaits, Damage, Fates};
use super::books::Books;
use super::crew::{self, Death, Report};
use super::desk::{client, inventory};
use super::order::{Order, stock};
use super::place::Place;
use super::variant::Variant;

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    pub variant: Variant,
    pub damage: Damage,
    pub fates: Fates,
    pub customer_waits: CustomerWaits,
    pub given_back: usize,
    pub seconds: f64,
    pub orders_per_s: f64,
    pub requests_per_order: f64,
    /// In milliseconds.
    pub longest_wait: f64,
    /// In milliseconds.
    pub recovery: Option<f64>,
    pub death: Option<Death>,
}

/// What is reported meanwhile.
pub enum Event<'a> {
    Begin,
    Done(&'a Run),
}

/// Runs all variants on the same orders.
pub fn all(orders: &[Order], tell: impl Fn(Event<'_>)) -> Result<Vec<Run>, Failure> {
    let place = Place::find()?;
    tell(Event::Begin);
    let mut runs = Vec::new();
    for variant in Variant::ALL {
        let run = one(&place, variant, orders)?;
        tell(Event::Done(&run));
        runs.push(run);
    }
    Ok(runs)
}

fn one(place: &Place, variant: Variant, orders: &[Order]) -> Result<Run, Failure> {
    let prefix = format!("{}:{}", place.prefix, variant.name());
    let stock = stock(orders);
    let mut books = Books::open(&place.url, &prefix)?;
    books.begin(&stock, orders)?;
    let at_inventory =
        (variant == Variant::Inventory).then(|| client(&place.url, &prefix).connect()).transpose()?;
    if let Some(client) = &at_inventory {
        stock.iter().try_for_each(|(product, n)| inventory(client).add_stock(product, n.unsigned_abs()))?;
    }
    let bar = bar(variant, orders.len());
    let report =
        crew::work(place, &prefix, variant, orders.len(), &mut books, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let report = report?;
    let mut closing = books.close(&stock)?;
    if let Some(client) = &at_inventory {
        for (product, left) in &mut closing.left {
            *left = inventory(client).stock(product)?.available.try_into()?;
        }
    }
    place.clean()?;
    let seconds = seconds(&report);
    let (traces, micros) = (|| report.done.iter(), |us: u64| us as f64 / 1000.0);
    Ok(Run {
        variant,
        damage: audit::damage(&stock, &closing),
        fates: audit::fates(orders, &closing),
        customer_waits: audit::customer_waits(orders, &report),
        given_back: traces().map(|it| it.given_back).sum(),
        seconds,
        orders_per_s: orders.len() as f64 / seconds,
        requests_per_order: traces().map(|it| it.requests).sum::<u64>() as f64 / orders.len() as f64,
        longest_wait: micros(traces().map(|it| it.longest_wait).max().unwrap_or(0)),
        recovery: report.death.as_ref().and_then(|death| audit::recovery(orders, &report, death)).map(micros),
        death: report.death,
    })
}

/// Returns the seconds from the start until the last order was done.
fn seconds(report: &Report) -> f64 {
    let ended = report.done.iter().flat_map(|it| &it.traces).map(|it| it.released).max();
    let ended = ended.unwrap_or(report.started).max(report.started + 1);
    (ended - report.started) as f64 / 1e6
}

/// Returns a progress bar, which is on standard error, and only if that is a terminal.
fn bar(variant: Variant, orders: usize) -> ProgressBar {
    let bar = ProgressBar::new(orders as u64);
    if let Ok(style) =
        ProgressStyle::with_template("{prefix:14} {bar:40} {human_pos}/{human_len} orders  {elapsed}")
    {
        bar.set_style(style);
    }
    bar.with_prefix(variant.name())
}
