# Weir. `make` lists what there is; each target makes what it needs, its Python environment first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL_VENV := .venv-shell
READY := $(VENV)/.ready
TOPO ?= topologies/leaf_spine.yaml
SWITCH ?= weir
DEVICE ?= 0
CONFIG ?= p4src/build/fabric.p4info.txtpb,p4src/build/fabric.json
LOCK := .ci/constraints.txt
PYTEST = $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile
SHELL_RUN = $(SHELL_VENV)/bin/python -m p4runtime_sh --device-id $(DEVICE) --election-id 0,1 $(if $(CONFIG),--config $(CONFIG))

# Python compiles each module once rather than at every start, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-bmv2 test-tofino-model test-torch test-documents test-long mutants lint lock docs format doctor mininet p4 tofino proto shell bench results wireshark clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY)  ## train a model over an emulated fabric, once per placement strategy, and compare
	@$(BIN)/weir demo

test: $(READY) $(SHELL_VENV)/.ready  ## the test suite (as root it installs Debian's mininet first)
	@if [ "$$(id -u)" = 0 ] && ! command -v mnexec >/dev/null; then \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends \
			mininet iputils-ping ethtool net-tools iproute2; } >/dev/null 2>&1 || \
		echo "weir: mininet could not be installed; its tests are skipped" >&2; fi
	@$(PYTEST)

test-quick: $(READY)  ## one minute of tests of what you edit: FOLDER=hosts/protocol, those that failed last come first
	@timeout --foreground --signal INT --kill-after 5 55 $(BIN)/python -m pytest -n 2 --failed-first --maxfail 5 tests/$(FOLDER); status=$$?; \
		if [ $$status = 124 ]; then echo "weir: stopped after a minute; name a smaller FOLDER or run 'make test'" >&2; fi; \
		exit $$status

test-bmv2: $(READY)  ## the same packets through bmv2 and the emulated switch (needs simple_switch_grpc; root for all of it)
	@if ! command -v simple_switch_grpc >/dev/null; then \
		echo "weir: simple_switch_grpc (bmv2) is not on PATH, so there is nothing to compare with; build behavioral-model and" \
			"its targets/simple_switch_grpc, or install the package p4lang-bmv2" >&2; exit 2; fi
	@$(BIN)/python -m pytest tests/bmv2

test-tofino-model: $(READY)  ## PTF's tests on the vendor's model of a Tofino (needs tofino-model, Stratum, and what 'make tofino' packs; root)
	@PATH="$(CURDIR)/$(BIN):$$PATH" && if [ "$$(id -u)" = 0 ]; then exec unshare --net python -m weir.tests.ptf.tofino_model; \
		else exec python -m weir.tests.ptf.tofino_model; fi

test-torch: $(READY)  ## PyTorch's own distributed tests over the fabric (needs PyTorch and expecttest)
	@$(BIN)/python -m weir.tests.hosts.torch.public_suite

test-long: $(READY)  ## the long randomised runs, and whole runs of what `make test` proves in parts
	@$(PYTEST) -m long --timeout 3600 --no-loadscope-reorder

test-documents: $(VENV)/.docs-ready  ## every command of README and docs that takes a minute or much longer
	@$(PYTEST) -m document --timeout 3600

mutants: $(READY)  ## break COUNT places of the code (200), and say which of them no test notices
	@$(BIN)/python -m weir.tests.mutation --count $(or $(COUNT),200) --jobs 2

lint: $(READY)  ## style, formatting, strict types and plain docstrings
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@mkdir -p $(VENV)/link && ln -sfn ../.. $(VENV)/link/weir
	@$(BIN)/python -m weir.tests.prose
	@$(BIN)/mypy

docs: $(VENV)/.docs-ready  ## the documentation as a site, with an API reference: build/site/index.html
	@mkdir -p $(VENV)/link && ln -sfn ../.. $(VENV)/link/weir
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

format: $(READY)  ## format the sources and mend what lint can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

doctor: $(READY)  ## what this machine has, what each thing is for, how to get the rest
	@$(BIN)/weir doctor

mininet: $(READY)  ## TOPO=FILE.yaml in Mininet, SWITCH=weir or bmv2 (root)
	@$(BIN)/weir mininet $(TOPO) --switch $(SWITCH)

p4: $(READY)  ## recompile the P4 programs (needs p4c)
	@$(BIN)/python -m weir.p4src.build

tofino: $(READY)  ## check the P4 program for Tofino; that it fits the chips, and what they load (needs p4c's p4test; for the chips, its Tofino back end)
	@command -v p4test >/dev/null || { echo "weir: p4test (of p4c) is not on PATH; build p4c with its p4test back end" >&2; exit 2; }
	@cd p4src && for chip in 1 2; do for program in tofino/fabric.p4 forest/forest.p4; do \
		p4test -D__TARGET_TOFINO__=$$chip --Werror --Wdisable=unused $$program || exit; done; done
	@rm -rf build/tofino
	@$(BIN)/python -m weir.p4src.fit --keep build/tofino
	@for program in $$(ls build/tofino 2>/dev/null); do $(BIN)/python -m weir.controller.p4runtime.packing \
		build/tofino/$$program p4src/build/$$program.p4info.txtpb p4src/build/$$program.pb.bin || exit; done

proto: $(READY)  ## generate the control service's messages anew
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. wire/control.proto

# Starts a switch of its own unless ADDRESS names one; CONFIG= leaves that one's program as it is.
shell: $(READY) $(SHELL_VENV)/.ready  ## p4runtime-shell on an emulated switch, or on ADDRESS=127.0.0.1:9559 DEVICE=0
ifdef ADDRESS
	@$(SHELL_RUN) --grpc-addr $(ADDRESS)
else
	@$(BIN)/weir-switch --no-p4 --log-level off -- --grpc-server-addr 127.0.0.1:9559 & \
	trap "kill $$!" EXIT; sleep 2; $(SHELL_RUN) --grpc-addr 127.0.0.1:9559
endif

# PyTorch is left out: tests run with the version that is installed.
lock: $(READY) $(VENV)/.docs-ready  ## pin the versions that CI tests with: those of this environment
	@{ sed -n 1p $(LOCK); $(BIN)/python -m pip freeze --all --exclude-editable | grep '==' | grep -vE '^(pip|torch|sympy|mpmath|filelock|expecttest)==' \
		| sed 's/$$/; python_version == "3.11"/'; } >$(LOCK).new && mv $(LOCK).new $(LOCK)

wireshark:  ## how to have Wireshark show aggregation messages, INT and reports
	@echo "Once, or as a plugin:"
	@echo "  wireshark -X lua_script:$(CURDIR)/wire/weir.lua capture.pcap        (tshark takes the same words)"
	@echo "  mkdir -p ~/.local/lib/wireshark/plugins && cp $(CURDIR)/wire/weir.lua ~/.local/lib/wireshark/plugins/"
	@echo "Then filter by weir_agg, weir_int or weir_report; 'weir mininet --captures FOLDER' and 'weir-switch --pcap' write captures."

results: $(READY)  ## run the evaluation's points that have no record, and write docs/evaluation.md
	@$(BIN)/weir evaluate experiments/evaluation.yaml --write docs/evaluation.md

bench: $(READY)  ## benchmarks, each beside a peer in the same run (ONLY="ports lookups" for some)
	@$(BIN)/python -m weir.bench $(foreach name,$(ONLY),--only $(name))

clean:  ## remove the environments, caches and run records
	rm -rf $(VENV) $(SHELL_VENV) runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian ships venv apart from python3: as root it is installed, else the reader is told.
define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "weir needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version)" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -qq -y python3-venv; \
		else echo "Python's venv is missing: run 'sudo apt-get install python3-venv' once" >&2; exit 2; fi; }
	@$(PYTHON) -m venv $(1)
endef

$(READY): pyproject.toml $(LOCK)
	@echo "weir: setting up $(VENV) (once; downloads Python packages)"
	$(call make_venv,$(VENV))
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK) --editable '.[dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK) --no-deps 'ptf>=0.10,<0.13'  # of what it lists it needs scapy alone here
	@touch $@

$(VENV)/.docs-ready: $(READY)
	@echo "weir: adding MkDocs to $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK) --editable '.[docs]'
	@touch $@

# p4runtime-shell pins protobuf below 3.21, which nothing else here can share.
$(SHELL_VENV)/.ready: Makefile
	@echo "weir: setting up $(SHELL_VENV) (once)"
	$(call make_venv,$(SHELL_VENV))
	@$(SHELL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check p4runtime-shell==0.0.6
	@touch $@
