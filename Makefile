# Each target first installs what it needs: on a Debian or Ubuntu machine that has only Rust,
# `make test` is enough. No target asks a question.

CARGO ?= cargo
# Arguments of the demo, for instance DEMO_ARGS=--json.
DEMO_ARGS ?=

# Where `make matrix` runs, and which groups of tests: all, unless they are named.
SERVERS ?=
ONLY ?=
SAVE ?=

# Where `make contract` runs: on a server or on a cluster.
ON ?= cluster

# How many schedules `make shuttle` tries, and in which of its tests.
SCHEDULES ?= 100000
TEST ?= engine::interleavings

# How many states of each world `make models` explores at most.
MODELS_STATES ?= 1000000

# As what all tests and examples in the documentation are built, so that no package is built twice.
TESTED = --features redis-concurrent-cli/tls

# A crate of an author of a kind.
OWN = examples/own-once

.PHONY: demo pitfalls test matrix contract history failover check-history peers models shuttle simulate planted simulate-planted scale scale-page bench figures instructions lint msrv targets package doc setup

demo: setup
	$(CARGO) run --release --package demo -- $(DEMO_ARGS)

# The wrong ways of locking with Redis, each with a right one: the table of docs/pitfalls.md.
pitfalls: setup
	$(CARGO) run --release --package demo --example pitfalls

# Unit tests, tests/, and the examples in the documentation; then the tests of a crate outside the workspace, with the
# workspace's versions. All of them run, even if one fails.
test: setup
	CARGO="$(CARGO)" ci/test.sh $(TESTED); first=$$?; $(CARGO) test --doc $(TESTED) && cp Cargo.lock $(OWN) && \
		$(CARGO) test --manifest-path $(OWN)/Cargo.toml --target-dir target && exit $$first

# The tests that may depend on the server, on servers other than the system's: on all of ci/servers.sh, or
# make matrix SERVERS="redis-6.2 valkey-9" ONLY="Lua transports"; SAVE=1 writes the table of docs/operations.md.
matrix: setup
	@CARGO="$(CARGO)" ONLY="$(ONLY)" SAVE="$(SAVE)" ci/matrix.sh $(SERVERS)

# The contract suite for every kind of lock, on a cluster: make contract ON=cluster
contract: setup
	CONTRACT_ON=$(ON) $(CARGO) test --test locks contract::

# One history check (tests/faults/history.rs), a minute of it: make history SEED=7 SECONDS=60
history: setup
	$(CARGO) test --test faults -- --ignored --exact --nocapture history::history_of_the_given_seed

# A history through failovers (tests/failover/mod.rs); it prints what it counted as a line of JSON:
# make failover KIND=sentinel SEED=7 SECONDS=60, or KIND=cluster; with REPLICAS=1 for holds that a replica has acknowledged;
# with STRIKE=kill, or another of tests/failover/topology.rs, for failovers of one kind.
failover: setup
	$(CARGO) test --test faults -- --ignored --exact --nocapture failover::failover_of_the_given_seed

# What `history` and `failover` have written, checked by a program in Go over Porcupine: docs/design/check-it-yourself.md.
check-history:
	cd checker && go vet . && go test . && go build -o ../target/check-history .
	target/check-history $(or $(HISTORY),target/histories/*.jsonl)

# The same storm of faults for the locks of redis-py and Redisson, where they are there: the table of docs/vs.md.
peers: setup
	$(CARGO) test --test faults -- --ignored --exact --nocapture history::peers::peers_of_the_given_seed

# The models of `make test`, larger, each up to MODELS_STATES states: three minutes. Each reports whether these were
# all of its states ("complete") or not ("cut off"); more states take more time and memory.
models:
	@ci/setup.sh cc
	MODELS=large MODELS_STATES=$(MODELS_STATES) $(CARGO) test --release --package verify worlds:: -- --nocapture --test-threads 1

# The engine's threads under a scheduler that decides every step: see verify/interleavings/mod.rs.
shuttle:
	@ci/setup.sh cc
	RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle SCHEDULES=$(SCHEDULES) \
		$(CARGO) test --release --package verify -- --show-output $(TEST)

# Clients and the deployed scripts in simulated time, with faults: SEEDS=1000 runs from SEED=1 on, or SECONDS=60 of them;
# see verify/simulation/runs.rs.
simulate:
	@ci/setup.sh cc
	RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle \
		$(CARGO) test --release --package verify -- --show-output engine::simulation

# Breaks the safety rules one at a time, and shows what notices. Takes a quarter of an hour.
planted: setup
	@CARGO="$(CARGO)" ci/planted.sh

# The simulation with each of these faults, until FAILURES=4 of SEEDS=1000 seeds have failed: how many of how many, and which checks.
simulate-planted:
	@ci/setup.sh cc
	@CARGO="$(CARGO)" SIMULATE=1 ci/planted.sh

# Measures and simulates the figures and tables of docs/design/scale.md again: some minutes on an idle machine. `scale-page`
# only rewrites the tables, from the existing figures.
scale: setup
	$(CARGO) test --release --package verify -- --ignored --exact --nocapture engine::scale::page::measure_and_write

scale-page:
	$(CARGO) test --package verify -- --ignored --exact engine::scale::page::write_page

bench: setup
	$(CARGO) bench

# Measures the table and the pictures of docs/design/benchmarks.md again, in a quarter of an hour; for a
# part of it: make figures FIGURES="pair handoff" ROUNDS=1 SECONDS=0.5
figures: setup
	benches/figures.sh

# The instructions that a client executes for a pair, a re-entry, a hand-over, a renewal, counted by valgrind: the same on
# every machine. Fails if one is over its budget (benches/instructions/budgets.txt).
instructions: setup
	@ci/setup.sh valgrind
	$(CARGO) bench --bench instructions

lint:
	ci/setup.sh cc rust-tools luacheck
	$(CARGO) fmt --all --check
	$(CARGO) fmt --check --manifest-path $(OWN)/Cargo.toml
	$(CARGO) clippy --package redis-concurrent --lib -- -D warnings
	$(CARGO) clippy --package redis-concurrent --lib --no-default-features -- -D warnings
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	ci/unused.sh
	@CARGO="$(CARGO)" CHECK=1 ci/planted.sh
	luacheck --quiet lua examples/*.lua $(OWN)/src partitions/src

# Compiles with exactly the Rust version that Cargo.toml states.
msrv:
	@ci/setup.sh cc
	ci/msrv.sh

# Compiles for Windows, macOS, FreeBSD and musl.
targets:
	@ci/setup.sh cc
	@CARGO="$(CARGO)" ci/targets.sh

# Packs all that is published, and compiles it from the archives alone.
package:
	@ci/setup.sh cc
	@CARGO="$(CARGO)" ci/package.sh

# Also of what is private, for who reads the engine; the public pages come last, and stay.
doc:
	@ci/setup.sh cc
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --all-features --document-private-items --package redis-concurrent
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --all-features --package redis-concurrent --package redis-concurrent-testkit \
		--package redis-concurrent-tokio --package redis-concurrent-partitions --package redis-concurrent-tower

# A linker for cargo, and redis-server for what runs on private servers.
setup:
	@ci/setup.sh cc redis
