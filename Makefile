# agent-sandbox: what people type. `make` alone prints this list.
#
# The work itself is in tests/run, tests/demo and cargo; this file only names it.

SHELL       := /bin/sh
CARGO       ?= cargo
INSTALL     ?= install
PREFIX      ?= /usr/local
DESTDIR     ?=

bindir      := $(DESTDIR)$(PREFIX)/bin
libexecdir  := $(DESTDIR)$(PREFIX)/libexec/agent-sandbox
sharedir    := $(DESTDIR)$(PREFIX)/share/agent-sandbox
docdir      := $(DESTDIR)$(PREFIX)/share/doc/agent-sandbox

CARGO_TARGET_DIR ?= target
BIN         := $(CARGO_TARGET_DIR)/release/agent-sandbox
# Programs that people do not start themselves.
LIBEXEC     := $(BIN)-chaperon $(BIN)-shim
# Everything that they are made of: with it, `sudo make install` after `make build` needs no cargo.
SOURCES     := $(shell find src chaperon profiles build.rs Cargo.toml Cargo.lock -type f 2>/dev/null)
PROFILES    := $(shell cd profiles 2>/dev/null && find . -type f -name '*.toml' | sed 's|^\./||' | sort)
DOCS        := $(shell cd docs 2>/dev/null && find . -type f -name '*.md' | sed 's|^\./||' | sort)
TOPDOCS     := $(wildcard README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md LICENSE)

.PHONY: help demo test bench build install uninstall lint clean
.DEFAULT_GOAL := help

help: ## this list
	@echo 'agent-sandbox: make TARGET'
	@echo
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'
	@echo
	@echo '  make install PREFIX=$$HOME/.local    without root; DESTDIR=DIR stages a package'
	@echo '  tests/run SUITE…                    one suite: confine, cli, plan, house, agents, slurm, lib, wire'

demo: ## what a jailed shell sees and what it cannot, in one screen
	@tests/demo

test: ## install what the tests need, build, run all of them, count
	@tests/run

bench: ## start-up time, memory and size of the release binary
	@tests/run --bench

build: $(BIN) ## the release binaries

# The shim runs in jails whose libraries nobody knows here: it is linked statically.
$(BIN): $(SOURCES)
	$(CARGO) build --release --locked --package agent-sandbox --bins
	@chaperon/static release > /dev/null
	@touch $@

install: $(BIN) ## copy binaries, profiles and documentation below PREFIX (/usr/local)
	$(INSTALL) -d '$(bindir)' '$(libexecdir)' '$(sharedir)' '$(docdir)'
	$(INSTALL) -m 755 $(BIN) '$(bindir)/agent-sandbox'
	@set -e; for f in $(LIBEXEC); do $(INSTALL) -m 755 "$$f" '$(libexecdir)/'; done
	@set -e; for f in $(PROFILES); do $(INSTALL) -D -m 644 "profiles/$$f" '$(sharedir)/profiles/'"$$f"; done
	@set -e; for f in $(DOCS); do $(INSTALL) -D -m 644 "docs/$$f" '$(docdir)/docs/'"$$f"; done
	@set -e; for f in $(TOPDOCS); do $(INSTALL) -m 644 "$$f" '$(docdir)/'; done
	@echo "installed: $(bindir)/agent-sandbox"

# Removes what `install` of this version puts there, then the directories that this leaves empty.
uninstall: ## remove exactly what install put there
	rm -f '$(bindir)/agent-sandbox'
	@rm -f '$(libexecdir)/agent-sandbox-chaperon' '$(libexecdir)/agent-sandbox-shim'
	@for f in $(PROFILES); do rm -f '$(sharedir)/profiles/'"$$f"; done
	@for f in $(DOCS); do rm -f '$(docdir)/docs/'"$$f"; done
	@for f in $(TOPDOCS); do rm -f '$(docdir)/'"$$f"; done
	@for d in '$(libexecdir)' '$(sharedir)' '$(docdir)'; do \
		if [ -d "$$d" ]; then find "$$d" -depth -type d -exec rmdir --ignore-fail-on-non-empty {} +; fi; \
	done

lint: ## formatting, clippy, dependencies, scripts: what CI checks before the tests
	@.ci/run --lint

clean: ## remove everything that was built
	$(CARGO) clean
