//! `docs/design/benchmarks.md` and its pictures: that they are of the figures beside them, and that what
//! makes them tells a goal that was reached from one that was not.

#[path = "../../benches/pictures/make.rs"]
mod make;

use std::fs;
use std::path::Path;

use tempfile::TempDir;

const ABOUT: &str = r#"{"about":{"cores":2,"cpu":"A & B","redis":"7.0.15","rustc":"1.95.0","date":"2026-01-02","commit":"abc","load":0.25}}"#;

/// A folder of figures with a page beside it.
struct FiguresFolder(TempDir);

impl FiguresFolder {
    fn new(parts: &[(&str, &[&str])]) -> FiguresFolder {
        let folder = FiguresFolder(tempfile::tempdir().unwrap());
        let page =
            "before\n<!-- made by `cargo bench --bench pictures`: begin -->\nold\n<!-- end -->\nafter\n";
        fs::create_dir(folder.folder()).unwrap();
        fs::write(folder.0.path().join("page.md"), page).unwrap();
        for (name, rows) in parts {
            let text = format!("{ABOUT}\n{}\n", rows.join("\n"));
            fs::write(folder.folder().join(format!("{name}.jsonl")), text).unwrap();
        }
        folder
    }

    fn folder(&self) -> std::path::PathBuf {
        self.0.path().join("page")
    }

    /// The file of this name, as it should be.
    fn made(&self, name: &str) -> String {
        let files = make::files(&self.folder()).unwrap();
        files.into_iter().find(|(path, _)| path.ends_with(name)).unwrap().1
    }

    /// The line of the table that begins so.
    fn line(&self, begin: &str) -> String {
        let table = make::table(&self.folder()).unwrap();
        table.lines().find(|line| line.starts_with(&format!("| {begin}"))).unwrap().to_owned()
    }
}

#[test]
fn the_page_and_the_pictures_are_of_the_figures_beside_them() {
    make::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/design/benchmarks")).unwrap();
}

#[test]
fn a_picture_that_was_touched_is_found() {
    let folder = FiguresFolder::new(&[]);
    for (path, text) in make::files(&folder.folder()).unwrap() {
        fs::write(path, text).unwrap();
    }
    make::check(&folder.folder()).unwrap();
    let touched = folder.folder().join("local-handoff-rate.svg");
    fs::write(&touched, "<svg/>").unwrap();
    assert!(make::check(&folder.folder()).unwrap_err().contains("local-handoff-rate.svg"));
}

#[test]
fn goals_are_missed_met_and_surpassed() {
    let pair = |pin: &str, ratio: f64| {
        format!(
            r#"{{"workload":"uncontended","kind":"simple","pin":"{pin}","rounds":5,"seconds":2.0,"ratio_floor":{ratio}}}"#
        )
    };
    let standing = |pinned, not| {
        let folder = FiguresFolder::new(&[("pair", &[&pair("same", pinned), &pair("none", not)])]);
        folder.line("lock + unlock, simple ÷ the same").split_once("≤ 1.06 | ").unwrap().1.to_owned()
    };
    assert_eq!(standing(1.1, 1.101), "1.10 | yes | 1.10 | **no** |");
    assert_eq!(standing(1.06, 0.9), "1.06 | aim | 0.90 | aim |");
    let folder = FiguresFolder::new(&[]);
    assert!(
        folder.line("lock + unlock, simple ÷").ends_with("| – | not yet measured | – | not yet measured |")
    );
}

#[test]
fn one_miss_of_several_is_a_miss() {
    let row = |processes: u32, sent: f64| {
        format!(r#"{{"pin":"same","fair":true,"processes":{processes},"commands_per_acquisition":{sent}}}"#)
    };
    let standing = |last| {
        let rows = [row(2, 2.0), row(4, 2.05), row(16, last)];
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        FiguresFolder::new(&[("processes", &rows)]).line("requests an acquisition")
    };
    assert!(standing(2.05).contains("| 2.00, 2.05, 2.05 | yes |"), "{}", standing(2.05));
    assert!(standing(2.06).contains("| 2.00, 2.05, 2.06 | **no** |"), "{}", standing(2.06));
}

#[test]
fn a_goal_of_few_digits_counts_no_more() {
    let standing = |sent: f64| {
        let row =
            |n| format!(r#"{{"pin":"same","fair":true,"processes":{n},"commands_per_acquisition":{sent}}}"#);
        FiguresFolder::new(&[("crowds", &[&row(2), &row(4), &row(16)])]).line("… eight threads in each")
    };
    assert!(standing(1.04).contains("| ≤ 2.05 | ≤ 1.0 | 1.04, 1.04, 1.04 | aim |"), "{}", standing(1.04));
    assert!(standing(1.06).contains("| 1.06, 1.06, 1.06 | yes |"), "{}", standing(1.06));
}

#[test]
fn a_figure_of_less_than_its_row_promises_is_not_shown() {
    let kept = |seconds: f64| {
        let row = format!(
            r#"{{"pin":"same","locks":100000,"lease_ms":30000,"rounds":1,"seconds":{seconds},"client_cpu_percent":1.0}}"#
        );
        FiguresFolder::new(&[("renewal", &[&row])]).line("100,000 locks")
    };
    assert!(kept(60.0).contains("| 1.00 % | aim |"), "{}", kept(60.0));
    assert!(!kept(59.0).contains("1.00 %"), "{}", kept(59.0));
}

#[test]
fn the_longest_wait_has_no_goal_where_the_scheduler_decides_it() {
    let row = |pin: &str| format!(r#"{{"pin":"{pin}","fair":false,"wait_us_max":9000.0}}"#);
    let folder = FiguresFolder::new(&[("local-handoff", &[&row("same"), &row("none")])]);
    assert!(folder.line("… longest wait").ends_with("| 9.0 ms | **no** | 9.0 ms |  |"));
}

#[test]
fn the_page_keeps_what_is_not_made() {
    let folder = FiguresFolder::new(&[("names", &[r#"{"pin":"same","names":1000000,"rounds":1}"#])]);
    let page = folder.made("page.md");
    assert!(page.starts_with("before\n") && page.ends_with("after\n") && !page.contains("old"));
    assert!(page.contains("names (1000000 names once): 2026-01-02, 2 cores of A & B"), "{page}");
    fs::write(folder.0.path().join("page.md"), &page).unwrap();
    assert_eq!(folder.made("page.md"), page);
}

#[test]
fn pictures_show_every_figure_where_it_belongs() {
    let rates = [(1, 20.0), (2, 300.0), (4, 4_000.0), (8, 50_000.0), (16, 0.5)];
    let row = |(n, rate)| {
        format!(r#"{{"pin":"none","fair":true,"processes":{n},"threads":1,"acquisitions_per_s":{rate:?}}}"#)
    };
    let rows = rates.map(row);
    let folder = FiguresFolder::new(&[("processes", &rows.each_ref().map(String::as_str))]);
    let picture = folder.made("processes-rate.svg");
    assert_eq!(picture, folder.made("processes-rate.svg"));
    // One of the two panels is empty, and says so.
    assert_eq!(picture.matches("not yet measured").count(), 1);
    let line = picture.lines().find(|line| line.starts_with("<polyline")).unwrap();
    let points: Vec<(f64, f64)> = line.split('"').nth(1).unwrap().split(' ').map(point).collect();
    assert_eq!(points.len(), rates.len());
    assert!(points.windows(2).all(|two| two[0].0 < two[1].0), "to the right: {points:?}");
    assert!(points[..4].windows(2).all(|two| two[0].1 > two[1].1), "higher: {points:?}");
    assert!(points[4].1 > points[0].1, "the lowest: {points:?}");
    // Ten times as much is as much higher everywhere.
    let step = |i: usize| points[i].1 - points[i + 1].1;
    assert!((step(0) / 15_f64.ln() - step(1) / (4_000_f64 / 300.0).ln()).abs() < 0.2, "{points:?}");
}

#[test]
fn pictures_are_whole_with_figures_and_without() {
    let row = |processes: u32, figure: &str| {
        format!(
            r#"{{"pin":"same","fair":true,"processes":{processes},"acquisitions_per_s":{figure},"commands_per_acquisition":{figure},"wait_us_p50":{figure}}}"#
        )
    };
    // Nothing on a logarithmic scale; and one figure alone, which makes no scale by itself.
    let (nothing, one) = (row(2, "0.0"), row(4, "1.0"));
    let fixtures = [
        FiguresFolder::new(&[]),
        FiguresFolder::new(&[
            ("processes", &[&nothing]),
            ("local-handoff", &[&one]),
            ("crowds", &[&nothing]),
        ]),
        FiguresFolder::new(&[("processes", &[&nothing, &one]), ("local-handoff", &[&nothing])]),
    ];
    assert!(fixtures[1].made("local-handoff-wait.svg").contains(">10<"));
    for folder in &fixtures {
        for (path, text) in make::files(&folder.folder()).unwrap() {
            if path.extension().is_some_and(|it| it == "svg") {
                whole(&text);
                assert!(!text.contains("NaN") && !text.contains("inf"), "{}", path.display());
            }
        }
    }
}

fn point(text: &str) -> (f64, f64) {
    let (x, y) = text.split_once(',').unwrap();
    (x.parse().unwrap(), y.parse().unwrap())
}

/// Every tag that begins ends, and no sign that XML has for itself stands bare.
fn whole(text: &str) {
    let mut open = Vec::new();
    for piece in text.split('<').skip(1) {
        let (tag, words) = piece.split_once('>').unwrap();
        assert!(!words.contains('>') && !words.replace("&amp;", "").contains('&'), "{piece}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}
