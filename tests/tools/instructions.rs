//! What an operation costs in instructions, in the build of the tests: that of the bench profile is counted by
//! `make instructions`.

#[path = "../../benches/instructions/count.rs"]
mod count;

#[test]
#[ignore = "a role, played by a child process"]
fn role_counted() {
    count::play().unwrap();
}

#[test]
fn no_operation_executes_more_instructions_than_its_budget() {
    let args = ["instructions::role_counted", "--exact", "--include-ignored", "--nocapture"];
    let over = count::compare(count::Build::Tests, &args).unwrap();
    assert!(over.is_empty(), "{over:#?}");
}
