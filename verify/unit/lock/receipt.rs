//! Unit tests of `src/lock/receipt.rs`.

use super::*;

const OWNER: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8:4194305";

fn receipt() -> Receipt {
    Receipt {
        kind: "reentrant lock".to_owned(),
        name: "stock:42".to_owned(),
        at_key: false,
        owner: OWNER.to_owned(),
        number: 217_123_456_789_012,
        hand_overs: 3,
        lease: Duration::from_secs(30),
        fixed: false,
        args: String::new(),
        value: 0,
    }
}

#[test]
fn what_is_written_is_read() {
    let names = ["a", "a.b", "%", "ключ 鍵\n", "\0", "rc1.", "+", &"x".repeat(1024)];
    for name in names {
        for (fixed, args, value) in [(false, "", 0), (true, "7", 7), (true, "a.b %", u64::MAX)] {
            let (name, args) = (name.to_owned(), args.to_owned());
            let receipt = Receipt { name, at_key: fixed, fixed, args, value, ..receipt() };
            let text = receipt.to_string();
            assert!(text.bytes().all(|b| b.is_ascii_graphic()), "{text}");
            assert_eq!(text.parse::<Receipt>().unwrap(), receipt, "{text}");
        }
    }
}

#[test]
fn what_was_not_written_is_refused() {
    let good = receipt().to_string();
    assert_eq!(good.parse::<Receipt>().unwrap(), receipt());
    let with = |i: usize, part: &str| {
        let mut fields: Vec<&str> = good.split('.').collect();
        fields[i] = part;
        fields.join(".")
    };
    let cases = [
        (String::new(), "not a receipt"),
        ("hello".to_owned(), "not a receipt"),
        (with(0, "rc2"), "version rc2"),
        (with(0, "RC1"), "not a receipt"),
        (format!(" {good}"), "not a receipt"),
        (format!("{good}\n"), "value"),
        (format!("{good}.0"), "11"),
        (good.rsplit_once('.').unwrap().0.to_owned(), "9"),
        (with(1, ""), "kind"),
        (with(1, "%F"), "kind"),
        (with(1, "%FF"), "kind"),
        (with(1, "reentrant lock"), "was altered"),
        (with(2, ""), "empty"),
        (with(2, &"x".repeat(1025)), "1025"),
        (with(2, "stock%3a42"), "was altered"),
        (with(2, "%73tock"), "was altered"),
        (with(2, "%+5"), "name"),
        (with(2, "@@a"), "was altered"),
        (with(2, "@"), "empty"),
        (with(3, "4711"), "owner"),
        (with(3, "x%3A1"), "owner"),
        (with(3, &escape(&OWNER.to_uppercase())), "owner"),
        (with(4, "x"), "number"),
        (with(4, "-1"), "number"),
        (with(4, "+1"), "was altered"),
        (with(4, "01"), "was altered"),
        (with(4, &u64::MAX.to_string()), "number"),
        (with(5, "4096"), "hand-offs"),
        (with(6, "99"), "lease must be between"),
        (with(6, "18446744073709551615"), "lease must be between"),
        (with(6, "18446744073709551616"), "lease"),
        (with(7, ""), "kind of lease"),
        (with(7, "Fixed"), "kind of lease"),
        (with(9, ""), "value"),
    ];
    for (text, told) in cases {
        let error = text.parse::<Receipt>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}: {error}");
        assert!(error.to_string().contains(told), "{text:?}: {error}");
    }
}
