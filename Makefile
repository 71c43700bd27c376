# Each target makes .venv and installs what it needs by itself.

PYTHON ?= python3
PIP = .venv/bin/pip install --quiet --disable-pip-version-check
SIMD_PIP = .venv-simd/bin/pip --quiet --disable-pip-version-check
# AVX2 only where this machine has it; the build is for this machine alone.
SIMD_CC = cc $(shell grep -qsw avx2 /proc/cpuinfo && echo -mavx2)

.PHONY: demo test lint bench test-vllm test-simd clean

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

# The exact engine on Pillow-SIMD, and how fast it is there. Needs a C compiler and the headers of libjpeg and zlib.
test-simd: .venv/.dev .venv-simd/.dev
	.venv-simd/bin/pytest tests/media/test_pillow.py
	.venv/bin/python benchmarks/bench_engines.py --simd .venv-simd/bin/python

clean:
	rm -rf .venv .venv-simd

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

# The order matters. Both Pillows are the package PIL: pip, which sees Pillow missing where there is only Pillow-SIMD,
# would install it over that; and Pillow, uninstalled last, would take Pillow-SIMD's files with it.
.venv-simd/.dev: pyproject.toml
	$(PYTHON) -m venv --clear .venv-simd
	$(SIMD_PIP) install --upgrade pip
	$(SIMD_PIP) install --editable '.[all]' --group test
	$(SIMD_PIP) uninstall --yes pillow
	CC="$(SIMD_CC)" $(SIMD_PIP) install --no-deps --no-cache-dir --no-binary pillow-simd pillow-simd
	touch $@
