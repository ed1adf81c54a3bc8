//! The table, and what contradicts it.

use super::table::table;
use super::{Failure, Finding, Pitfall};

/// A row that has been run.
pub struct Row {
    name: &'static str,
    wrong: Box<dyn Finding>,
    right: Vec<(&'static str, Box<dyn Finding>)>,
}

impl Row {
    /// Runs both halves, each on a server of its own.
    pub fn of(pitfall: &Pitfall) -> Result<Row, Failure> {
        let right = pitfall.right.iter().map(|way| Ok((way.name, way.run()?)));
        Ok(Row {
            name: pitfall.name,
            wrong: pitfall.wrong.run()?,
            right: right.collect::<Result<_, Failure>>()?,
        })
    }

    /// Returns what is not as it should be: a wrong way that succeeded, or a right one that failed.
    pub fn complaints(&self) -> Vec<String> {
        let wrong = self.wrong.is_kept().then(|| format!("{}: it went well: {}", self.name, self.wrong));
        let right = self.right.iter().filter(|(_, finding)| !finding.is_kept());
        let right = right.map(|(way, finding)| format!("{}: {way}: {finding}", self.name));
        wrong.into_iter().chain(right).collect()
    }

    /// Returns a line for each right way.
    fn lines(&self) -> Vec<Vec<String>> {
        let mut head = [self.name.to_owned(), self.wrong.to_string()];
        let lines = self.right.iter().map(|(way, finding)| {
            let [name, wrong] = std::mem::take(&mut head);
            vec![name, wrong, (*way).to_owned(), finding.to_string()]
        });
        lines.collect()
    }
}

/// Returns the table of these rows.
pub fn text(rows: &[Row]) -> String {
    let lines: Vec<_> = rows.iter().flat_map(Row::lines).collect();
    let head = ["pitfall", "the wrong way", "the right way", ""];
    table(&head, head.len(), &lines)
}
