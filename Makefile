# agent-sandbox: what people type. `make` alone prints this list.
#
# The work itself is in tests/run, tests/demo, lmod/install and cargo; this file only names it.

SHELL       := /bin/sh
CARGO       ?= cargo
# The machine to build for. TARGET=x86_64-unknown-linux-musl makes static programs.
TARGET      ?=
# `debug` is for tests of the installation, which need no fast programs.
PROFILE     ?= release

# Where things go. DESTDIR stages a package: it stands before every path, and in none that is written down.
# What is not given here is where lmod/install says, below PREFIX.
PREFIX      ?= /usr/local
DESTDIR     ?=
export PREFIX DESTDIR mandir bashdir zshdir fishdir moduledir unitdir

CARGO_TARGET_DIR ?= target
BUILT       := $(CARGO_TARGET_DIR)/$(if $(TARGET),$(TARGET)/)$(PROFILE)
BIN         := $(BUILT)/agent-sandbox
# Manual pages and completions, made from the programs' own tables.
PAGES       := $(BUILT)/pages
# Where the site's policy is. It is built in; what a build was told, later builds and installations keep.
SITE_RECORD := $(BUILT)/.site-dir
SITE_DIR    ?= $(or $(shell cat '$(SITE_RECORD)' 2>/dev/null),/etc/agent-sandbox)
# Everything that they are made of: with it, `sudo make install` after `make build` needs no cargo.
SOURCES     := $(shell find src base landlock chaperon network ebpf profiles docs/pages docs/reference/cli.md build.rs Cargo.toml Cargo.lock \
                 -type f 2>/dev/null)

.PHONY: help demo recording quick fuzz test matrix arm test-agents bench build static install uninstall dist vendor-dist deb rpm packages lint clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help: ## this list
	@echo 'agent-sandbox: make TARGET'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-13s %s\n", $$1, $$2 }'
	@echo
	@echo '  make install PREFIX=$$HOME/.local    without root; DESTDIR=DIR stages a package'
	@echo '  make build SITE_DIR=/DIR            where the site keeps its policy (/etc/agent-sandbox)'
	@echo '  tests/run SUITE…                    one suite: confine, cli, plan, house, agents, slurm, tracer, lib'

demo: ## what a jailed shell sees and what it cannot, in one screen
	@tests/demo

recording: ## record the session that the README shows, anew, as docs/session.svg
	@tests/demo --record docs/session.svg

quick: ## try a change in under a minute, without root or Slurm (P=chaperon: one crate)
	@tests/quick $(P)

fuzz: ## policies, plans and messages of chance, for as long as that takes (P=wire: one crate)
	@NEXTEST_PROFILE=fuzz PROPTEST_CASES=$${PROPTEST_CASES:-20000} \
		AGENT_SANDBOX_TEST_SEED=$${AGENT_SANDBOX_TEST_SEED:-$$(date +%s)} tests/quick $(P)

test: ## install what the tests need, build, run all of them, count (SHORT=1: without what differs little)
	@tests/run $(if $(SHORT),--short) $(if $(KEEP),--keep $(KEEP))

matrix: ## the suites that need Slurm on each release of it, in roots of Debian's (as root; RELEASE="24.11 26.05": these)
	@tests/matrix $(RELEASE)

arm: ## builds for aarch64, boots Debian's kernel for it under qemu, and runs suites there (as root; PARTS="confine tracer": these)
	@tests/arm $(PARTS)

test-agents: ## the real agents alone: install them, drive each from end to end in the jail
	@tests/run agents

bench: ## start-up time, memory, size, what Slurm and tracing cost, with the release binaries
	@tests/run --bench

build: $(BIN) $(PAGES) ## the release binaries, the manual pages, the completions
	@echo "built: $(BIN), with the site's policy in $(SITE_DIR)"

static: ## the same without any shared library, for nodes that differ
	@$(MAKE) --no-print-directory build TARGET=$$(uname -m)-unknown-linux-musl

# Written anew when the directory is another one, and then everything is built anew.
ifneq ($(shell cat '$(SITE_RECORD)' 2>/dev/null),$(SITE_DIR))
.PHONY: $(SITE_RECORD)
endif
$(SITE_RECORD):
	@case '$(SITE_DIR)' in /*) ;; *) echo 'error: SITE_DIR must begin with a slash' >&2; exit 2 ;; esac
	@mkdir -p '$(@D)'
	@printf '%s\n' '$(SITE_DIR)' > '$@'

# The shim runs in jails whose libraries nobody knows here, and what verifies marks on Slurm's controller: they are linked statically.
$(BIN): $(SOURCES) $(SITE_RECORD)
	@$(if $(TARGET),CARGO_BUILD_TARGET='$(TARGET)') chaperon/static $(PROFILE) > /dev/null
	AGENT_SANDBOX_SITE_DIR='$(SITE_DIR)' $(CARGO) build --locked --package agent-sandbox --bins \
		$(if $(filter release,$(PROFILE)),--release) $(if $(TARGET),--target $(TARGET))
	$(CARGO) build --locked --package agent-sandbox-tracer --package agent-sandbox-trail --bins \
		$(if $(filter release,$(PROFILE)),--release) $(if $(TARGET),--target $(TARGET))
	@touch $@

# They are the same for every profile and target. What makes them is built quickly and not installed.
$(PAGES): $(SOURCES)
	$(CARGO) build --locked --package agent-sandbox --example pages
	@rm -rf '$@'
	'$(CARGO_TARGET_DIR)/debug/examples/pages' '$@'
	@touch '$@'

install: $(BIN) $(PAGES) ## copy programs, pages, profiles and documentation below PREFIX (/usr/local)
	@lmod/install install '$(BUILT)'
	@echo "the site's policy: $(SITE_DIR)"

uninstall: ## remove exactly what install put there
	@lmod/install uninstall

# What TARGET means to them, they say themselves.
dist: ## a release for machines that need nothing else, with its list of parts and checksums, in target/dist
	@TARGET='$(TARGET)' packaging/dist

vendor-dist: ## the sources with those of all crates, to build without a network
	@packaging/source

deb: ## Debian's package of a release
	@TARGET='$(TARGET)' packaging/deb

rpm: ## RPM's package of a release
	@TARGET='$(TARGET)' packaging/rpm

packages: ## make all of these, compare what is built twice, install, try and remove each in roots of Debian's (as root)
	@packaging/check

lint: ## formatting, clippy, dependencies, scripts: what CI checks before the tests
	@.ci/run --lint

clean: ## remove everything that was built
	$(CARGO) clean
