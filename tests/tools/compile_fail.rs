//! What must not compile does not, and says why.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/tools/compile_fail/*.rs");
}
