# Every target prepares what it needs, once, below this folder. PYTHON=... picks the interpreter, CUDA=13 the
# other CUDA major version, ARGS=... goes to the command that a target runs. LOCKED=1 installs what .ci/locked names,
# each file by its hash; `make lock` writes that anew.

PYTHON ?= python3
CUDA ?= 12
LOCKED ?=
ARGS ?=

ifeq ($(filter 12 13,$(CUDA)),)
$(error CUDA is '$(CUDA)'; needs 12 or 13)
endif
ifneq ($(and $(LOCKED),$(filter-out 12,$(CUDA))),)
$(error LOCKED=1 is of CUDA=12 only)
endif

# The wheels bring their own CUDA; a toolkit or packages of the caller's environment would mix with them. Tests start
# hundreds of processes, which without bytecode would compile the project each.
unexport CUDA_HOME CUDA_PATH CUDA_ROOT PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE PIP_USER PIP_TARGET PIP_PREFIX

# An environment holds absolute paths, so a moved folder, another interpreter or another CUDA rebuilds it.
identity := $(shell printf '%s' '$(CURDIR) $(PYTHON) $(CUDA)$(LOCKED:%= locked)' | cksum | cut -d ' ' -f 1)
ready := .venv/.ready-$(identity)
lint_ready := .venv-lint/.ready-$(identity)
frontends_ready := .venv-frontends/.ready-$(identity)
site_ready := .venv/.site-$(identity)
pip := bin/python -m pip --disable-pip-version-check -qq

comma := ,

# Installs the extras $(1), or the versions of the locked list $(2).
install = $(if $(LOCKED),install --require-hashes --requirement .ci/locked/$(2).txt \
	&& .venv/$(pip) install --no-deps --no-build-isolation --editable .,install --editable '.[cuda$(CUDA),$(1)]')

.PHONY: demo test test-all test-frontends fuzz site stats lint lock clean
.DEFAULT_GOAL := test

demo: $(ready)
	@.venv/bin/baracuda-gen demo $(ARGS)

# Each worker may hold a CUDA context, so a large machine's core count is no guide.
pytest := bin/pytest --quiet --numprocesses auto --maxprocesses 8

# A sample of kernels, of the same size whatever their number; BARACUDA_TEST_SAMPLE=WORD takes another one.
test: $(ready)
	@.venv/$(pytest) $(ARGS)

# Everything that checking/verify/table.py lists.
test-all: $(ready)
	@.venv/$(pytest) --everything $(ARGS)

# What needs torch, jax or the site's tools.
test-frontends: $(frontends_ready)
	@.venv-frontends/$(pytest) --frontends $(ARGS)

# Two minutes on two cores: 2,000 specs, 50 programs, 500 calls.
fuzz: $(ready)
	@.venv/bin/baracuda-gen fuzz $(ARGS)

site: $(ready) $(site_ready)
	@.venv/bin/baracuda-gen site $(ARGS)

# Sizes of generated files and of what they rest on; ARGS=--json.
stats: $(ready)
	@.venv/bin/python -m baracuda.cli.tools.stats $(ARGS)

lint: $(ready) $(lint_ready)
	@.venv-lint/bin/ruff check --quiet .
	@find runtime/include runtime/host -name '*.cuh' -o -name '*.h' -o -name '*.cpp' | xargs .venv-lint/bin/clang-format --dry-run --Werror
	@PYTHONPATH=.imports .venv-lint/bin/lint-imports --no-cache --no-logo > .venv-lint/imports.log || (cat .venv-lint/imports.log && false)
	@.venv-lint/bin/mypy --python-executable .venv/bin/python

check_version := import sys; v = sys.version_info; sys.exit(v < (3, 11) and "Python is %d.%d; needs 3.11" % v[:2])

# The stamp is removed first and written last: an interrupted installation starts again from nothing.
$(ready): pyproject.toml
	@$(PYTHON) -c '$(check_version)'
	@echo "preparing .venv (once; about 700 MB)"
	@test -f $@ || $(PYTHON) -m venv --clear .venv
	@rm -f $@
	@.venv/$(pip) $(call install,test,test)
	@touch $@

# The site is made by our own command, so its tools are in the same environment.
$(site_ready): $(ready)
	@echo "preparing the site's tools (once)"
	@.venv/$(pip) $(call install,docs,site)
	@touch $@

# Apart from .venv, which has to do without them.
$(frontends_ready): pyproject.toml
	@echo "preparing .venv-frontends (once; about 2 GB)"
	@test -f $@ || $(PYTHON) -m venv --clear .venv-frontends
	@rm -f $@
	@.venv-frontends/$(pip) install $(if $(LOCKED),--require-hashes --no-deps --requirement .ci/locked/frontends.txt,\
		--editable '.[cuda$(CUDA)$(comma)test$(comma)torch$(comma)jax$(comma)docs$(comma)hub$(comma)sign]' playwright)
	@$(if $(LOCKED),.venv-frontends/$(pip) install --no-deps --no-build-isolation --editable .)
	@touch $@

# Tools apart from what they check: their dependencies must not satisfy ours.
project := tomllib.load(open("pyproject.toml", "rb"))["project"]
lint_tools := import tomllib; print(*$(project)["optional-dependencies"]["lint"])
$(lint_ready): pyproject.toml
	@echo "preparing .venv-lint (once)"
	@test -f $@ || $(PYTHON) -m venv --clear .venv-lint
	@rm -f $@
	@$(if $(LOCKED),.venv-lint/$(pip) install --require-hashes --requirement .ci/locked/lint.txt,\
		.venv-lint/bin/python -c '$(lint_tools)' | xargs .venv-lint/$(pip) install)
	@touch $@

lock:
	@.ci/lock

clean:
	@rm -rf .venv .venv-lint .venv-frontends build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
