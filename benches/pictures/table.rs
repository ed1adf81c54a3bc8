//! The table of `docs/design/benchmarks.md`.

use std::fmt::Write;

use super::data::{Data, Part, Pin};
use super::goals::goals;

const BEGIN: &str = "<!-- made by `cargo bench --bench pictures`: begin -->\n";
const END: &str = "<!-- end -->\n";

/// Returns the table, and below it where its figures come from.
pub(crate) fn table(data: &Data) -> String {
    let mut text = "| | at least | aim | pinned | | not pinned | |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for goal in goals() {
        let [least, aim] = goal.limits();
        let _ = write!(text, "| {} | {least} | {aim} |", goal.what);
        for pin in Pin::BOTH {
            let _ = write!(text, " {} | {} |", goal.written(data, pin), goal.standing(data, pin).word());
        }
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&origins(data));
    text
}

/// Returns `page` with a new table between the marks.
pub(crate) fn into_page(page: &str, data: &Data) -> Result<String, String> {
    let cut = |mark: &str| page.split_once(mark).ok_or_else(|| format!("there is no line {}", mark.trim()));
    let ((before, _), (_, after)) = (cut(BEGIN)?, cut(END)?);
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", table(data)))
}

/// Returns when and where the parts were measured, one line for each run.
fn origins(data: &Data) -> String {
    let mut runs: Vec<(&Part, Vec<String>)> = Vec::new();
    for (name, part) in &data.parts {
        let entry = format!("{name} ({})", rounds(part));
        match runs.iter_mut().find(|(other, _)| other.about == part.about) {
            Some((_, names)) => names.push(entry),
            None => runs.push((part, vec![entry])),
        }
    }
    if runs.is_empty() {
        return "Not yet measured.\n".to_owned();
    }
    let mut text = String::new();
    for (part, names) in runs {
        let at = &part.about;
        let _ = writeln!(
            text,
            "- {}: {}, {} cores of {}, redis-server {}, Rust {}, commit {}; load average before the run {:.2}",
            names.join(", "),
            at.date,
            at.cores,
            at.cpu,
            at.redis,
            at.rustc,
            at.commit,
            at.load,
        );
    }
    text
}

fn rounds(part: &Part) -> String {
    match part.rows.first() {
        None => "nothing".to_owned(),
        Some(row) if row.names.is_some() => format!("{} names once", row.names.unwrap_or_default()),
        Some(row) if row.rounds == 1 => format!("1 round of {} s", row.seconds),
        Some(row) => format!("{} rounds of {} s", row.rounds, row.seconds),
    }
}
