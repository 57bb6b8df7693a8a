# `make` lists the commands.

.PHONY: help run run-local test built lint lint-others formatted checks fmt servers unit shared fleet beside-fleet chain program clients browser beside-browser screenshots upstreams openapi installs \
	dist dist-test monitoring kubernetes retries router-eval release bench bench-overload bench-peers counts tokenizers fuzz

help:
	@echo "make run        build quickly and start tollgate dev with a simulated model"
	@echo "make run-local  the same with a small real model, which it installs"
	@echo "make test       everything: format, lints, unit, integration, fleet, chain, client, browser, upstream and tokenizer tests, instruction"
	@echo "                counts, packages (as root), files for Prometheus, Grafana and Kubernetes"
	@echo "make lint       format and lints only"
	@echo "make fmt        format the code"
	@echo "make unit       unit and integration tests only, on SQLite and memory"
	@echo "make shared     the integration tests on PostgreSQL and Redis"
	@echo "make fleet      several gateways on one PostgreSQL and one Redis; processes are killed, paused and cut off"
	@echo "make retries    clients that retry while gateways are killed and connections cut, many times"
	@echo "make chain      the chain tools with a real node"
	@echo "make clients    official and popular client libraries and coding agents with tollgate dev"
	@echo "make browser    the portal in a real browser, which it installs"
	@echo "make screenshots  the same, with screenshots of every page in target/browser, and updates those in the documentation"
	@echo "make counts     count the instructions of a request and compare them with the budget"
	@echo "make tokenizers  compare the token estimate with tokenizers of other vendors, which it installs"
	@echo "make fuzz       mutate recorded messages and feed them to the parsers; SECONDS=600 TARGETS=\"requests sse\""
	@echo "make upstreams  tollgate with third-party model servers"
	@echo "make openapi    the OpenAPI descriptions of both APIs, with Redocly's linter, which it installs"
	@echo "make dist-test  installs, upgrades and removes packages in empty root folders; needs root"
	@echo "make monitoring  the alerts and the dashboard, with promtool and a gateway"
	@echo "make kubernetes  the Kubernetes objects and the Helm chart"
	@echo "make dist       static binary, tarball and Debian package in target/dist; takes about ten minutes"
	@echo "make release    profile-guided build of target/release/tollgate; takes several minutes"
	@echo "make bench      compare tollgate with nginx: CPU, latency, memory; QUICK=1 for a short run"
	@echo "make bench-peers  the same with LiteLLM and Portkey's gateway, which it installs"
	@echo "make bench-overload  tollgate and nginx with twice the load that they can serve"
	@echo "make router-eval DATA=file  evaluate the router on prompts with known outcomes"

run:
	cargo run --profile quick -- dev

run-local:
	cargo build --profile quick
	@scripts/run-local

# Downloads run while the compiler is busy. Everything is compiled once, so nothing is prepared for compiling it again, and
# by Clippy's driver, which is the compiler with lints: reading the code a second time for them would take three minutes.
# The counts are taken while nothing else runs: a gateway's regular jobs are in them, and run more often in a test that is slow.
# The test of packages is the last, because sudo may ask for a password.
test: export CARGO_INCREMENTAL = 0
test: export CARGO_PROFILE_DEV_CODEGEN_UNITS = 16
test: export CARGO_PROFILE_DEV_DEBUG = 0
test: export RUSTC_WORKSPACE_WRAPPER = $(CLIPPY_DRIVER)
test: export RUSTFLAGS = -D warnings
test: export TOLLGATE_KEY_ROUNDS = 1000
test:
	@test -x "$(CLIPPY_DRIVER)" || { echo "Clippy is missing: rustup component add clippy"; exit 1; }
	@mkdir -p target; \
	$(MAKE) --no-print-directory installs >target/installs.log 2>&1 & installing=$$!; \
	$(MAKE) --no-print-directory checks formatted built || { kill $$installing; exit 1; }; \
	wait $$installing || { cat target/installs.log; exit 1; }
	@$(MAKE) --no-print-directory unit shared lint-others counts
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line fleet beside-fleet
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line browser beside-browser
	@$(MAKE) --no-print-directory dist-test

# What runs while the fleets wait for leases to end and for killed servers to return.
beside-fleet:
	@$(MAKE) --no-print-directory --jobs=1 tokenizers chain

# Tests that run while the browser's do, which wait for the browser half of their time.
beside-browser:
	@$(MAKE) --no-print-directory --jobs=1 clients upstreams openapi monitoring kubernetes

CLIPPY_DRIVER = $(shell rustup which clippy-driver 2>/dev/null || command -v clippy-driver)

built:
	cargo test --no-run --lib --bins --benches $(addprefix --test ,$(TESTS))

TESTS = it scorer_allocations chain fleet counts tokenizers

# Installs everything that tests need and the system lacks.
installs: servers
	@for test in counts tokenizers chain clients browser upstreams openapi dist monitoring kubernetes; do tests/$$test/run --install || exit 1; done

lint: checks formatted
	cargo clippy --lib --bins --benches $(addprefix --test ,$(TESTS)) -- -D warnings
	@$(MAKE) --no-print-directory lint-others

formatted:
	cargo fmt --check
	cargo fmt --check --manifest-path training/Cargo.toml
	cargo fmt --check --manifest-path bench/Cargo.toml
	cargo fmt --check --manifest-path fuzz/Cargo.toml

# The programs beside the gateway, its documentation, licences and advisories.
lint-others:
	cargo clippy --manifest-path training/Cargo.toml --target-dir target -- -D warnings
	cargo clippy --manifest-path bench/Cargo.toml --target-dir target --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items --quiet
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources && scripts/check-advisories; \
	else echo "cargo-deny is not installed: licences and advisories are not checked"; fi

# Rooms, words, contract and links: seconds, without a compiler.
checks:
	@scripts/check-rooms
	@scripts/check-words
	@scripts/check-contract
	@scripts/check-walk

fmt:
	cargo fmt
	cargo fmt --manifest-path training/Cargo.toml
	cargo fmt --manifest-path bench/Cargo.toml
	cargo fmt --manifest-path fuzz/Cargo.toml

# Installs PostgreSQL and Redis, which tests start themselves.
servers:
	@scripts/install-servers

# INSTA_UPDATE=no: a differing snapshot is a failure, never a new file.
unit: servers
	INSTA_UPDATE=no RUST_TEST_THREADS=6 cargo test

# Tests in which the kind of store changes nothing run once, in `unit`: of the formats of requests and providers, tool loops,
# failover and hybrids, responses that are cut or implausible,
# the configuration, connections, logs and memory of the process.
NO_STORE = c02_ c03_aliases c04_tool_loop:: c04_tool_loop_bounds c04_tool_loop_streams c06_ c09_ c10_ configuration \
	connection_ faults_cut faults_provider faults_usage harness_ router_calibrate tools_ messages_ agents_codex \
	process_log process_memory process_tls

shared: servers
	TOLLGATE_TEST_STORES=shared INSTA_UPDATE=no RUST_TEST_THREADS=6 cargo test --test it -- $(addprefix --skip ,$(NO_STORE))

# Two tests at a time: each has up to ten gateways. Their measurements are printed.
fleet: servers
	RUST_TEST_THREADS=2 cargo test --test fleet -- --show-output

# Many rounds of what the other tests do a few times: gateways are killed, connections are cut, clients retry.
retries: servers program
	TOLLGATE_RETRY_ROUNDS=200 cargo test --test it -- --show-output retries_kill
	TOLLGATE_RETRY_ROUNDS=100 cargo test --test fleet -- --show-output retries::
	TOLLGATE_RETRY_ROUNDS=100 tests/clients/run retries

counts:
	tests/counts/run

# Optimised, without the coverage that cargo-fuzz needs a nightly compiler for.
fuzz:
	cargo run --release --quiet --no-default-features --manifest-path fuzz/Cargo.toml --target-dir target -- \
		$(or $(SECONDS),60) $(TARGETS)

tokenizers:
	tests/tokenizers/run

chain:
	tests/chain/run

# The binary as `cargo test` builds it, so that nothing is compiled twice.
program:
	cargo test --no-run --test it

clients: program
	tests/clients/run

browser: program
	tests/browser/run

# Taking them is a third of the time, so `browser` alone takes none.
screenshots: export TOLLGATE_SCREENSHOTS = 1
screenshots: browser
	tests/browser/to-docs

upstreams: program
	tests/upstreams/run

openapi: program
	tests/openapi/run

dist-test: program
	tests/dist/run

monitoring: program
	tests/monitoring/run

kubernetes:
	tests/kubernetes/run

router-eval:
	@test -n "$(DATA)" || { echo "name the prompts: make router-eval DATA=prompts.jsonl (or .jsonl.xz)"; exit 1; }
	cargo run --release --quiet --manifest-path training/Cargo.toml -- eval --data "$(DATA)"

release:
	@scripts/build-release

dist:
	@scripts/build-dist

# A short run shows whether it works, not how fast: its report stays out of the repository.
bench: servers
	@scripts/install-nginx
	$(if $(QUICK),cargo build --release,@scripts/build-release)
	cargo test --quiet --manifest-path bench/Cargo.toml
	cargo run --release --quiet --manifest-path bench/Cargo.toml -- run \
		$(if $(QUICK),--quick --out bench/target/results) $(if $(PEERS),--peers $(PEERS))

bench-overload: servers
	@scripts/install-nginx
	$(if $(QUICK),cargo build --release,@scripts/build-release)
	cargo run --release --quiet --manifest-path bench/Cargo.toml -- overload \
		$(if $(QUICK),--out bench/target/results/overload.md)

bench-peers:
	@bench/peers/install
	@$(MAKE) --no-print-directory bench PEERS=bench/peers
