//! What must not compile does not, and says why: in compile_fail/, a comment `//~ text` stands behind each line that
//! has an error, with what is part of that error. There must be no other errors.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The compiled library that this test itself is linked with, as cargo tells.
fn library() -> String {
    let cargo = crate::cargo()
        .args(["test", "--no-run", "--quiet", "--test", "tools", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let messages = String::from_utf8(cargo.stdout).unwrap();
    let artifacts = messages.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let library =
        artifacts.filter(|message| message["target"]["name"] == "redis_concurrent").find_map(|message| {
            let files = message["filenames"].as_array()?;
            files.iter().filter_map(Value::as_str).find(|file| file.ends_with(".rlib")).map(String::from)
        });
    library.expect("the library is compiled")
}

/// The errors of the file at `path` with their notes, by line; none if it compiles.
fn errors(path: &Path, library: &str) -> BTreeMap<u64, String> {
    let dependencies = Path::new(library).with_file_name("");
    let dependencies = if dependencies.ends_with("deps") { dependencies } else { dependencies.join("deps") };
    let out = tempfile::tempdir().unwrap();
    let rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args(["--edition", "2024", "--emit", "metadata", "--error-format", "json", "--out-dir"])
        .arg(out.path())
        .arg("--extern")
        .arg(format!("redis_concurrent={library}"))
        .arg("-L")
        .arg(format!("dependency={}", dependencies.display()))
        .arg(path)
        .output()
        .unwrap();
    let messages = String::from_utf8(rustc.stderr).unwrap();
    let messages = messages.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let errors = messages.filter(|message| message["level"] == "error").filter_map(|message| {
        let spans = message["spans"].as_array()?;
        let line = spans.iter().find(|span| span["is_primary"] == true)?["line_start"].as_u64()?;
        // Not as it is rendered: that shows the line, with what is expected.
        let notes = message["children"].as_array()?;
        let texts = [&message].into_iter().chain(notes).filter_map(|it| it["message"].as_str());
        Some((line, texts.collect::<Vec<_>>().join("\n")))
    });
    errors.collect()
}

#[test]
fn misuse_does_not_compile() {
    let library = library();
    let mut files = 0;
    for file in std::fs::read_dir("tests/tools/compile_fail").unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut errors = errors(&path, &library);
        let mut expected = 0;
        for (line, text) in
            (1..).zip(text.lines()).filter_map(|(line, text)| Some((line, text.split_once("//~ ")?.1)))
        {
            let error = errors.remove(&line).unwrap_or_else(|| panic!("{path:?} compiles in line {line}"));
            assert!(error.contains(text), "not told in line {line} of {path:?}: {text}\n{error}");
            expected += 1;
        }
        assert!(errors.is_empty(), "other errors in {path:?}: {errors:#?}");
        assert_ne!(expected, 0, "no error is expected in {path:?}");
        files += 1;
    }
    assert_ne!(files, 0);
}
