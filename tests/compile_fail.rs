//! What the compiler must refuse, and how it says so. One group of files per macro or trait, by the prefix of the name.

#[test]
fn what_cannot_travel_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/wire_*.rs");
}

#[test]
fn what_is_no_protocol_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/protocol_*.rs");
}
