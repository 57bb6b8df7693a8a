# `make` lists the commands.

.PHONY: help run test lint fmt unit clients

help:
	@echo "make run      build in release and start tollgate dev"
	@echo "make test     everything: format, lints, unit, integration and client tests"
	@echo "make lint     format and lints only"
	@echo "make fmt      format the code"
	@echo "make unit     unit and integration tests only"
	@echo "make clients  the official and popular client libraries against tollgate dev"

run:
	cargo run --release -- dev

test: lint unit clients

lint:
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --quiet
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; \
	else echo "cargo-deny is not installed: licences are not checked"; fi

fmt:
	cargo fmt

# INSTA_UPDATE=no: a snapshot that differs is a failure, never a new file.
unit:
	INSTA_UPDATE=no cargo test

clients:
	cargo build
	tests/clients/run
