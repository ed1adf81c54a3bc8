//! Code on the pages is seen whole: rustdoc does not wrap it, and at 1,280 px it shows this many columns.

use std::path::Path;

const COLUMNS: usize = 95;

#[test]
fn no_line_of_code_on_a_page_is_cut_off() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shelves = ["docs", "docs/design"].map(|shelf| std::fs::read_dir(root.join(shelf)).unwrap());
    let files = shelves.into_iter().flatten().map(|file| file.unwrap().path());
    let pages = files.filter(|file| file.extension().is_some_and(|it| it == "md"));
    let mut wide = Vec::new();
    for page in pages.chain([root.join("README.md")]) {
        let mut is_code = false;
        for (i, line) in std::fs::read_to_string(&page).unwrap().lines().enumerate() {
            let is_hidden = line.starts_with("# ");
            match line.trim_start().starts_with("```") {
                true => is_code = !is_code,
                false if is_code && !is_hidden && line.chars().count() > COLUMNS => {
                    wide.push(format!("{}:{}: {line}", page.display(), i + 1));
                }
                false => {}
            }
        }
        assert!(!is_code, "{}: code without an end", page.display());
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}
