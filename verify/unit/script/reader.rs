//! Unit tests of `src/script/items.rs`.

use super::*;

fn texts(source: &str) -> Vec<&str> {
    tokens(source).unwrap().into_iter().map(|token| token.text).collect()
}

#[test]
fn comments_are_dropped_and_texts_are_kept_as_they_are() {
    let source = "--[[ end\nfunction ]] a = 'b -- \\' c' --[==[ ]] ]==] .. [[x\n--y]] -- z\n--@ parts\n";
    assert_eq!(texts(source), ["a", "=", "'b -- \\' c'", "..", "[[x\n--y]]", "--@ parts"]);
    let lines: Vec<_> = tokens(source).unwrap().iter().map(|token| token.line).collect();
    assert_eq!(lines, [2, 2, 2, 2, 2, 4]);
}

#[test]
fn numbers_and_symbols_are_told_apart() {
    assert_eq!(
        texts("a.b..1e-3..0x1F - -.5<=t[1]"),
        ["a", ".", "b", "..", "1e", "-", "3", "..", "0x1F", "-", "-", ".5", "<=", "t", "[", "1", "]"]
    );
}

#[test]
fn what_is_open_is_told_with_its_line() {
    for (source, line, why) in [
        ("a = 1\nb = 'c\n", 2, "not closed in its line"),
        ("\n\n--[[ open", 3, "not closed by ]]"),
        ("a = [==[ ]] ", 1, "]==]"),
        ("a = b\nif a != b then end", 2, "'!' does not belong"),
        ("a = 'ü' + ü", 1, "'ü' does not belong"),
    ] {
        let wrong = tokens(source).unwrap_err();
        assert!(wrong.line == line && wrong.why.contains(why), "{source}: {wrong:?}");
    }
}
