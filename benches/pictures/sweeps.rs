//! The pictures that are generated.

use super::chart::{Chart, Panel, Series};
use super::data::{Data, Pin};
use super::row::Row;
use super::svg::{Look, Mark};

type Figure = fn(&Row) -> Option<f64>;

const PROCESSES: [usize; 5] = [1, 2, 4, 8, 16];
/// Microseconds; 0 is `fair()`.
const LOCAL_HANDOFFS: [u64; 7] = [0, 250, 500, 1_000, 2_000, 4_000, 8_000];

const RATE: &str = "acquisitions/s (log scale)";
const WAIT: &str = "wait in lock(), µs (log scale)";
const LOCAL_HANDOFF: &str = "local hand-off, ms (0: fair)";

pub(crate) fn charts(data: &Data) -> Vec<Chart> {
    vec![
        over_processes(
            "processes-rate.svg",
            "One lock, one thread in each process: how often it is got",
            RATE,
            true,
            |pin| {
                MODES
                    .map(|mode| {
                        processes(data, pin, "processes", mode, plain(mode), |r| r.acquisitions_per_s)
                    })
                    .into()
            },
        ),
        over_processes(
            "processes-wait.svg",
            "One lock, one thread in each process: how long it is waited for",
            WAIT,
            true,
            |pin| {
                let one =
                    |mode| WAITS.map(|wait| processes(data, pin, "processes", mode, of(wait, mode), wait.2));
                MODES.map(one).into_iter().flatten().collect()
            },
        ),
        over_processes(
            "processes-requests.svg",
            "One lock, fair: what is sent for it",
            "requests an acquisition",
            false,
            |pin| {
                let one = look(0, Mark::Disc, "");
                let eight = look(1, Mark::Square, "6 3");
                let requests: Figure = |r| r.commands_per_acquisition;
                vec![
                    processes(
                        data,
                        pin,
                        "processes",
                        FAIR,
                        ("one thread in each process".to_owned(), one),
                        requests,
                    ),
                    processes(
                        data,
                        pin,
                        "crowds",
                        FAIR,
                        ("eight threads in each".to_owned(), eight),
                        requests,
                    ),
                ]
            },
        ),
        over_local_handoff(
            "local-handoff-rate.svg",
            "One lock, 2 processes × 8 threads: how often it is got",
            RATE,
            |pin| {
                vec![by_local_handoff(data, pin, ("all together".to_owned(), look(0, Mark::Disc, "")), |r| {
                    r.acquisitions_per_s
                })]
            },
        ),
        over_local_handoff(
            "local-handoff-wait.svg",
            "One lock, 2 processes × 8 threads: how long it is waited for",
            WAIT,
            |pin| {
                let named = |wait: Wait| (wait.0.to_owned(), look(wait.3, wait.1, wait.4));
                WAITS.map(|wait| by_local_handoff(data, pin, named(wait), wait.2)).into()
            },
        ),
    ]
}

/// How a lock may be handed on: its name, whether it is `fair()`, its color and its dashes.
type Mode = (&'static str, bool, usize, &'static str);
const FAIR: Mode = ("fair", true, 0, "");
const MODES: [Mode; 2] = [FAIR, ("default hand-off", false, 1, "6 3")];

/// A figure of waits: its name, its mark, and its field in a row; its color and its dashes are for pictures
/// with a single mode.
type Wait = (&'static str, Mark, Figure, usize, &'static str);
const WAITS: [Wait; 3] = [
    ("p50", Mark::Disc, |r| r.wait_us_p50, 0, ""),
    ("p99", Mark::Square, |r| r.wait_us_p99, 1, "6 3"),
    ("longest", Mark::Diamond, |r| r.wait_us_max, 2, "2 3"),
];

fn look(colour: usize, mark: Mark, dashes: &'static str) -> Look {
    Look { colour, mark, dashes }
}

fn plain(mode: Mode) -> (String, Look) {
    (mode.0.to_owned(), look(mode.2, if mode.1 { Mark::Disc } else { Mark::Square }, mode.3))
}

fn of(wait: Wait, mode: Mode) -> (String, Look) {
    (format!("{}, {}", mode.0, wait.0), look(mode.2, wait.1, mode.3))
}

fn processes(
    data: &Data,
    pin: Pin,
    part: &str,
    mode: Mode,
    (name, look): (String, Look),
    figure: Figure,
) -> Series {
    let one = |n| {
        let like = |r: &Row| r.processes == n && r.fair == mode.1 && r.local_handoff_us.is_none();
        data.row(part, pin, like).and_then(figure)
    };
    Series { name, look, figures: PROCESSES.map(one).into() }
}

fn by_local_handoff(data: &Data, pin: Pin, (name, look): (String, Look), figure: Figure) -> Series {
    let one = |us| {
        let like = |r: &Row| if us == 0 { r.fair } else { r.local_handoff_us == Some(us) };
        data.row("local-handoff", pin, like).and_then(figure)
    };
    Series { name, look, figures: LOCAL_HANDOFFS.map(one).into() }
}

fn panels(series: impl Fn(Pin) -> Vec<Series>) -> Vec<Panel> {
    Pin::BOTH.map(|pin| Panel { title: pin.name(), series: series(pin) }).into()
}

fn over_processes(
    file: &'static str,
    title: &'static str,
    up: &'static str,
    log: bool,
    series: impl Fn(Pin) -> Vec<Series>,
) -> Chart {
    let steps = PROCESSES.map(|n| n.to_string()).into();
    Chart { file, title, across: "processes", steps, up, log, panels: panels(series) }
}

fn over_local_handoff(
    file: &'static str,
    title: &'static str,
    up: &'static str,
    series: impl Fn(Pin) -> Vec<Series>,
) -> Chart {
    let steps = LOCAL_HANDOFFS.map(|us| format!("{}", us as f64 / 1e3)).into();
    Chart { file, title, across: LOCAL_HANDOFF, steps, up, log: true, panels: panels(series) }
}
