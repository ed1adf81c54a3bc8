//! The tables of `docs/design/scale.md`: written by `make scale`, and reproducible afterwards.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::costs::Costs;
use super::figures::Figures;
use super::measure::{cpu, measure};
use super::plan::{Need, plans};
use super::points::points;
use super::scene::{Scene, ms};
use super::simulate;
use crate::engine::random::first_seed;

/// The seed of the page's tables.
const SEED: u64 = 1;
/// How far a simulated figure may differ from the measured one.
const NEAR: f64 = 0.2;

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn measured() -> PathBuf {
    at("scale/measured.txt")
}

fn page() -> PathBuf {
    at("../docs/design/scale.md")
}

/// Two significant digits; three above 100.
fn short(value: f64) -> String {
    let digits = match value {
        _ if value >= 10.0 => 0,
        _ if value >= 1.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((&*text, String::new()), |(w, r)| (w, format!(".{r}")));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &rest
}

/// Returns a table of what is measured and simulated, side by side; fails if they differ.
fn compared(figures: &Figures, seed: u64) -> String {
    let costs = Costs::measured(figures);
    let mut table = "| | | measured | simulated |\n| --- | --- | ---: | ---: |\n".to_owned();
    let mut far = Vec::new();
    for point in points() {
        let seen = simulate(&point.scene, &costs, seed);
        for (i, figure) in point.figures.iter().enumerate() {
            let (real, simulated) =
                (figures.get(&format!("{}.{figure:?}", point.name)), figure.of(&point.scene, &seen));
            let words = if i == 0 { point.words } else { "" };
            let row = format!("| {words} | {} | {real:.2} | {simulated:.2} |", figure.words());
            if (simulated - real).abs() > NEAR * real {
                far.push(format!("{}: {row}", point.name));
            }
            table = table + &row + "\n";
        }
    }
    assert!(far.is_empty(), "SEED={seed}, more than {NEAR} apart:\n{}\nof\n{table}", far.join("\n"));
    table
}

/// Scenes for which no test has the time, nor a machine the processes.
fn larger() -> Vec<(&'static str, &'static str, Scene)> {
    let held = |clients, locks, s| {
        let lease = Duration::from_secs(s);
        Scene { counted: lease, ..Scene::held(clients, locks, lease) }
    };
    let hot = |clients| Scene { warm_up: ms(5000), counted: ms(10_000), ..Scene::contended(clients, 1) };
    vec![
        ("held-1e5", "1,000 processes with 100 locks each, leases of 30 s", held(1000, 100, 30)),
        ("held-1e6", "1,000 processes with 1,000 each", held(1000, 1000, 30)),
        ("held-1e6-10", "the same, leases of 10 s", held(1000, 1000, 10)),
        ("waiting-1e4", "10,000 processes that wait for one lock", Scene::waiting(10_001)),
        ("hot-1e2", "100 processes that want one lock all the time", hot(100)),
        ("hot-1e3", "1,000 processes", hot(1000)),
    ]
}

fn simulate_larger(figures: &mut Figures) {
    let costs = Costs::measured(figures);
    for (name, _, scene) in larger() {
        let seen = simulate(&scene, &costs, SEED);
        println!("{name} {seen:?}");
        figures.set(format!("{name}.load"), seen.load() * 100.0);
        figures.set(format!("{name}.requests"), seen.requests() as f64 / seen.seconds);
        figures.set(format!("{name}.pings"), seen.pings as f64 / seen.seconds);
        figures.set(format!("{name}.slowest"), seen.slowest as f64 / 1e6);
        figures.set(format!("{name}.lost"), seen.lost as f64);
    }
}

fn grown(figures: &Figures) -> String {
    let mut table = "| | requests/s | PINGs/s | of the primary's core | slowest reply | holds lost |\n\
                     | --- | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for (name, words, _) in larger() {
        let of = |what: &str| short(figures.get(&format!("{name}.{what}")));
        let (requests, pings, load) = (of("requests"), of("pings"), of("load"));
        let (slowest, lost) = (of("slowest"), short(figures.get(&format!("{name}.lost")).round()));
        let lost = if lost == "0.00" { "0" } else { &*lost };
        writeln!(table, "| {words} | {requests} | {pings} | {load} % | {slowest} ms | {lost} |").unwrap();
    }
    table
}

fn planned(figures: &Figures) -> String {
    let mut table = "| | renewals | heartbeats | PINGs | memory | connections |\n\
                     | --- | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for plan in plans() {
        let Need { renewals, waiters, listening, memory, connections } = plan.need(figures);
        let all = [renewals, waiters, listening, memory, connections];
        let enough = all.map(|need| match need {
            _ if need.is_infinite() => "never".to_owned(),
            need => short(need.ceil().max(1.0)).replace(".0", ""),
        });
        writeln!(table, "| {} | {} |", plan.words, enough.join(" | ")).unwrap();
    }
    table
}

fn costs(figures: &Figures) -> String {
    let rows = [
        ("a pair of `lock` and `unlock`, one thread, server CPU", "cpu.pair", "µs"),
        ("a contended acquisition, four processes, server CPU", "cpu.hand_over", "µs"),
        ("a renewal's script, server CPU", "cpu.renewal", "µs"),
        ("a write of a client, whatever is in it; or a PING, server CPU", "cpu.write", "µs"),
        ("a held lock, in Redis", "bytes.held", "B"),
        ("a released lock: its last number, for two hours", "bytes.left", "B"),
        ("a waiter's queue position", "bytes.waiter", "B"),
        ("a connection, in Redis", "bytes.connection", "B"),
    ];
    let mut table = "| | |\n| --- | ---: |\n".to_owned();
    for (words, name, unit) in rows {
        writeln!(table, "| {words} | {} {unit} |", short(figures.get(name))).unwrap();
    }
    table
}

/// Returns the page with its tables, each between its marks.
fn filled(page: &str, figures: &Figures) -> String {
    let tables = [
        ("costs", costs(figures)),
        ("compared", compared(figures, SEED)),
        ("larger", grown(figures)),
        ("plans", planned(figures)),
    ];
    tables.into_iter().fold(page.to_owned(), |page, (name, table)| {
        let (begin, end) = (format!("<!-- {name}: made by `make scale` -->\n\n"), "\n<!-- end -->");
        let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page has no {begin}"));
        let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("no end of {name}"));
        format!("{before}{begin}{table}{end}{after}")
    })
}

#[test]
fn the_page_says_what_was_measured() {
    let figures = Figures::read(&fs::read_to_string(measured()).unwrap());
    let page = fs::read_to_string(page()).unwrap();
    assert!(
        filled(&page, &figures) == page,
        "docs/design/scale.md is not what its figures make: make scale-page"
    );
}

/// Whatever the order in which things happen.
#[test]
fn what_is_simulated_is_near_what_was_measured() {
    let seed = first_seed();
    println!("SEED={seed}");
    compared(&Figures::read(&fs::read_to_string(measured()).unwrap()), seed);
}

#[test]
#[ignore = "simulates much, and writes the page: make scale"]
fn simulate_and_write() {
    let mut figures = Figures::read(&fs::read_to_string(measured()).unwrap());
    cpu(&mut figures);
    simulate_larger(&mut figures);
    fs::write(measured(), figures.to_string()).unwrap();
    write_page();
}

#[test]
#[ignore = "measures on this machine, and writes the page: make scale"]
fn measure_and_write() {
    fs::write(measured(), measure().to_string()).unwrap();
    simulate_and_write();
}

#[test]
#[ignore = "writes the page from the figures that there are: make scale-page"]
fn write_page() {
    let figures = Figures::read(&fs::read_to_string(measured()).unwrap());
    let text = fs::read_to_string(page()).unwrap();
    fs::write(page(), filled(&text, &figures)).unwrap();
}
