//! From the figures to the page and its pictures.

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

/// Every picture of `data`: its file's name and its text.
pub(crate) fn pictures(data: &Data) -> Vec<(&'static str, String)> {
    sweeps::charts(data).iter().map(|chart| (chart.file, chart.draw())).collect()
}

/// The table of the figures in `folder`.
pub(crate) fn table(folder: &Path) -> Result<String, String> {
    Ok(table::table(&Data::read(folder)?))
}

/// The pictures as definitions of links whose addresses are the pictures themselves: the documentation of the crate has no
/// other files.
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

/// What the figures in `folder` should have been made into: files and their texts. The page stands
/// beside the folder and has its name; where there is none, only the pictures are made.
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

/// The pictures in this folder that are drawn by hand, if there is one, as such definitions.
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

/// Whether the pictures and the page are those of the figures in `folder`; says which is not.
pub(crate) fn check(folder: &Path) -> Result<(), String> {
    let files = files(folder)?;
    match files.iter().find(|(path, text)| read(path).as_ref() != Ok(text)) {
        None => Ok(()),
        Some((path, _)) => Err(format!(
            "{} was not made of the figures beside it: cargo bench --bench pictures -- docs/benchmarks",
            path.display()
        )),
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
