#![cfg_attr(not(doctest), doc = include_str!("guide/links.md"))]
#![doc = include_str!("../README.md")]
// The README and the pages of the repository as modules, so that they are part of the documentation and their
// examples are tested. A page links to another by a reference name, which it defines at its end as a path in
// the repository. Here the definitions of `guide/links.md`, `docs/pictures/embedded.md` and
// `docs/design/benchmarks/plots.md` come first, and the first definition of a name counts: these lead to modules,
// and to the pictures themselves.

macro_rules! pages {
    ($($page:ident $file:literal)*) => {$(
        #[cfg_attr(not(doctest), doc = include_str!("guide/links.md"))]
        #[cfg_attr(not(doctest), doc = include_str!("../docs/pictures/embedded.md"))]
        #[doc = include_str!($file)]
        pub mod $page {}
    )*};
}

pages! {
    architecture "../docs/design/architecture.md"
    check_it_yourself "../docs/design/check-it-yourself.md"
    command_line "../docs/command-line.md"
    conformance "../docs/design/conformance.md"
    cookbook "../docs/cookbook.md"
    failover "../docs/failover.md"
    failovers "../docs/design/failovers.md"
    fencing "../docs/fencing.md"
    from_java "../docs/from-java.md"
    from_other_locks "../docs/from-other-locks.md"
    guarantees "../docs/guarantees.md"
    interop "../docs/interop.md"
    operations "../docs/operations.md"
    pitfalls "../docs/pitfalls.md"
    proof "../docs/design/proof.md"
    protocol "../docs/design/protocol.md"
    protocol_failures "../docs/design/protocol-failures.md"
    protocol_kinds "../docs/design/protocol-kinds.md"
    protocol_several "../docs/design/protocol-several.md"
    rules "../lua/README.md"
    scale "../docs/design/scale.md"
    shutting_down "../docs/shutting-down.md"
    vs "../docs/vs.md"
    writing_a_kind "../docs/design/writing-a-kind.md"
}

#[cfg_attr(not(doctest), doc = include_str!("guide/links.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/design/benchmarks/plots.md"))]
#[doc = include_str!("../docs/design/benchmarks.md")]
pub mod benchmarks {}

// Its examples are tested by the crate that they are about.
#[cfg_attr(not(doctest), doc = include_str!("guide/links.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/async.md"))]
#[cfg_attr(doctest, doc = "In async code.")]
pub mod in_async_code {}
