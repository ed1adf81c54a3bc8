//! Unit tests of `src/script/items.rs`.

use super::*;

fn labels(source: &str) -> Vec<(u32, String)> {
    let label = |item: &Item<'_>| match item.label() {
        label if label.is_empty() => item.tokens[0].text.to_owned(),
        label => label,
    };
    items(source).unwrap().iter().map(|item| (item.line(), label(item))).collect()
}

#[test]
fn statements_are_found_wherever_they_stand() {
    let source = "kind.tag = 'it' local a, b = f 'x', {y = 1}\nkind.load = function(o)\n  local c = o\nend\n\
         function kind.renew() for i = 1, 2 do f(i) end repeat local x = 1 until x end local function g()\n\
         return function() end\nend\nfor _, v in ipairs({}) do f(v) end while f() do g() end do local x end\n\
         f(a)\n(g or f)(b)\nif a then b = 2 elseif b then else end return a, b";
    let found = labels(source);
    let found: Vec<_> = found.iter().map(|(line, label)| (*line, label.as_str())).collect();
    assert_eq!(
        found,
        [
            (1, "kind.tag"),
            (1, "a, b"),
            (2, "kind.load"),
            (5, "kind.renew"),
            (5, "g"),
            (8, "for"),
            (8, "while"),
            (8, "do"),
            (9, "f"),
            (11, "if"),
            (11, "return"),
        ]
    );
}

#[test]
fn what_a_statement_needs_are_names_and_not_fields_or_keys() {
    let found = items("function kind.load(o) w.tell = {drop = kind.soon(), now} x:call(kind) end").unwrap();
    let needs: Vec<_> = found[0].needs.iter().copied().collect();
    let locals = ["kind", "now", "o", "w", "x"].map(Name::Local);
    let kinds = [Name::Kind("load"), Name::Kind("soon"), Name::WholeKind];
    assert_eq!(needs, [&locals[..], &kinds[..]].concat());
}

#[test]
fn what_does_not_close_is_told() {
    for (source, line, why) in [
        ("function kind.load()\n  if a then\nend", 1, "this \"function\" is not closed"),
        ("local a = (1\nend", 2, "does not close the \"(\" of line 1"),
        ("end", 1, "closes nothing"),
    ] {
        let wrong = items(source).unwrap_err();
        assert!(wrong.line == line && wrong.why.contains(why), "{source}: {wrong:?}");
    }
}
