#!/usr/bin/env bash
# vLLM for the invoice service. README.md has the arithmetic of every number.
#
#   VLLM_API_KEY=sk-… ./serve_vllm.sh                                   # the same key as INVOICE_API_KEY
#   VLLM_API_KEY=sk-… ./serve_vllm.sh Qwen/Qwen2.5-VL-7B-Instruct --port 8000 --gpu-memory-utilization 0.9
#
# The key is in the environment (`--api-key` is the same), for command lines are seen by all users of a machine.
set -euo pipefail
model=${1:-Qwen/Qwen2.5-VL-7B-Instruct}
shift || true

exec vllm serve "$model" \
    --limit-mm-per-prompt.image 4 \
    --limit-mm-per-prompt.video 0 \
    --mm-processor-kwargs.max_pixels 1638400 \
    --max-model-len 10240 \
    --max-num-seqs 8 \
    --enable-prefix-caching \
    --structured-outputs-config.backend xgrammar \
    --structured-outputs-config.disable_any_whitespace true \
    "$@"
