//! Generates the page and its pictures from the figures.

use std::path::{Path, PathBuf};

mod axis;
mod chart;
mod data;
mod goal;
mod goals;
mod svg;
mod sweeps;
mod table;

#[path = "../contention/row.rs"]
mod row;

use data::Data;

/// Returns every picture of `data`: the name of its file, and its text.
pub(crate) fn pictures(data: &Data) -> Vec<(&'static str, String)> {
    sweeps::charts(data).iter().map(|chart| (chart.file, chart.draw())).collect()
}

/// Returns the table of the figures in `folder`.
pub(crate) fn table(folder: &Path) -> Result<String, String> {
    Ok(table::table(&Data::read(folder)?))
}

/// Formats the pictures as link definitions whose addresses are the pictures themselves, as the crate's
/// documentation has no other files.
fn embedded<N: AsRef<str>>(pictures: &[(N, String)]) -> String {
    let definition = |(file, text): &(N, String)| {
        let name = file.as_ref().trim_end_matches(".svg");
        let address: String = text
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'/' | b':' | b'=' | b',' => {
                    char::from(byte).to_string()
                }
                _ => format!("%{byte:02X}"),
            })
            .collect();
        format!("[{name}]: data:image/svg+xml,{address}\n")
    };
    pictures.iter().map(definition).collect()
}

/// Returns the files that the figures in `folder` should generate, with their texts. The page is beside the
/// folder and has its name; if there is none, only the pictures are generated.
pub(crate) fn files(folder: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let data = Data::read(folder)?;
    let pictures = pictures(&data);
    let embedded = embedded(&pictures);
    let mut files: Vec<_> = pictures.into_iter().map(|(name, text)| (folder.join(name), text)).collect();
    let page = folder.with_extension("md");
    if page.exists() {
        files.push((folder.join("plots.md"), embedded));
        files.extend(drawn(&folder.with_file_name("pictures"))?);
        let text = read(&page)?;
        let text = table::into_page(&text, &data).map_err(|e| format!("{}: {e}", page.display()))?;
        files.push((page, text));
    }
    Ok(files)
}

/// Returns such definitions for the hand-drawn pictures in this folder, if it exists.
fn drawn(folder: &Path) -> Result<Option<(PathBuf, String)>, String> {
    if !folder.exists() {
        return Ok(None);
    }
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut pictures = Vec::new();
    for entry in folder.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|it| it == "svg") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            pictures.push((name, read(&path)?));
        }
    }
    pictures.sort();
    Ok(Some((folder.join("embedded.md"), embedded(&pictures))))
}

/// Checks that the pictures and the page match the figures in `folder`; the error names the file that does
/// not.
pub(crate) fn check(folder: &Path) -> Result<(), String> {
    let files = files(folder)?;
    match files.iter().find(|(path, text)| read(path).as_ref() != Ok(text)) {
        None => Ok(()),
        Some((path, _)) => Err(format!(
            "{} was not made of the figures beside it: cargo bench --bench pictures -- docs/design/benchmarks",
            path.display()
        )),
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
