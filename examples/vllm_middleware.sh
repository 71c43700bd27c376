#!/usr/bin/env bash
# vLLM with the edge inside its own server: pictures are prepared before vLLM reads the request.
#
#   pip install vlm-edge                      # into the environment of vLLM
#   ./vllm_middleware.sh Qwen/Qwen2.5-VL-7B-Instruct --max-model-len 16384
#
# vLLM hands no arguments to a middleware, so settings come from a file, and from variables laid over it. vLLM runs
# middleware before its own key check, so the edge has to know the keys too, or it works for strangers:
#
#   VLM_EDGE_API_KEYS='["sk-…"]' ./vllm_middleware.sh Qwen/Qwen2.5-VL-7B-Instruct --api-key sk-…
set -euo pipefail
model=${1:-Qwen/Qwen2.5-VL-7B-Instruct}
shift || true

export VLM_EDGE_CONFIG=${VLM_EDGE_CONFIG:-$(cd "$(dirname "$0")" && pwd)/edge.toml}

exec vllm serve "$model" --middleware vlm_edge.EdgeMiddleware "$@"
