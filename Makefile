# Each target makes .venv and installs what it needs by itself.

PYTHON ?= python3
PIP = .venv/bin/pip install --quiet --disable-pip-version-check

.PHONY: demo test lint bench test-vllm clean

demo: .venv/.product
	.venv/bin/vlm-edge demo

test: .venv/.dev
	.venv/bin/pytest

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: .venv/.dev
	.venv/bin/python benchmarks/bench_road.py

# A real vLLM on the CPU; its environment is made once a machine, outside this folder.
test-vllm: .venv/.dev
	.venv/bin/pytest tests/vllm

clean:
	rm -rf .venv

.venv/.pip:
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade pip
	touch $@

.venv/.product: .venv/.pip pyproject.toml
	$(PIP) --editable '.[all]'
	touch $@

.venv/.dev: .venv/.product pyproject.toml
	$(PIP) --group test --group lint --group bench
	touch $@
