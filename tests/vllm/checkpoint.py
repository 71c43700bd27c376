"""
Checkpoint: a tiny Qwen2.5-VL of random weights that a real vLLM serves. Run in its environment: checkpoint.py FOLDER.

Architecture, special tokens and the picture processor's numbers are the published ones; the rest is as small as it
can be. A byte of text is a token, and answers at temperature 0 are printable ASCII of the asked length that depends
on the pictures; when sampled they may hold other bytes, or end early.
"""

# mypy: disable-error-code="import-not-found"

import json
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

SPECIAL_TOKENS = (
    "<|endoftext|> <|im_start|> <|im_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
).split()

VOCABULARY = 320  # 256 bytes and the special tokens, up to the next multiple of 64
HIDDEN = 64
PATCH, MERGE, TEMPORAL_PATCH = 14, 2, 2

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}
{{- part.text -}}
{%- elif 'video' in part.type -%}
{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- else -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,  # heads of 32: the smallest that vLLM's attention takes on a CPU
    "num_key_value_heads": 1,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},  # half a head together
}

VISION = {
    "depth": 2,
    "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN,
    "num_heads": 2,
    "out_hidden_size": HIDDEN,
    "patch_size": PATCH,
    "spatial_merge_size": MERGE,
    "temporal_patch_size": TEMPORAL_PATCH,
    "window_size": 112,
    "fullatt_block_indexes": [1],
    "tokens_per_second": 2,
}

PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": 3_136,
    "max_pixels": 12_845_056,
    "patch_size": PATCH,
    "temporal_patch_size": TEMPORAL_PATCH,
    "merge_size": MERGE,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def tokenizer() -> Any:
    """Byte-level BPE without merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def config(tokens: Any) -> Any:
    number = tokens.convert_tokens_to_ids
    ends = {"bos_token_id": None, "eos_token_id": number("<|im_end|>"), "pad_token_id": number("<|endoftext|>")}
    return Qwen2_5_VLConfig(
        text_config=TEXT | ends,
        vision_config=VISION,
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
        tie_word_embeddings=False,
    )


def model(tokens: Any) -> Any:
    """The same weights every time; norms stay 1 and biases 0."""
    torch.manual_seed(0)
    made = Qwen2_5_VLForConditionalGeneration(config(tokens)).float().eval()
    with torch.no_grad():
        for name, weights in made.named_parameters():
            if weights.dim() > 1:
                weights.normal_(0.0, spread(name, weights[0].numel()))
        made.get_output_embeddings().weight.mul_(4.0 * printable(tokens))
    made.generation_config.eos_token_id = tokens.eos_token_id
    made.generation_config.pad_token_id = tokens.pad_token_id
    return made


def spread(name: str, inputs: int) -> float:
    if "embed_tokens" in name:
        return 1.0
    gain = 3.0 if "q_proj" in name or "k_proj" in name else 1.0  # sharp attention lets single picture tokens through
    return float(gain / inputs**0.5)


def printable(tokens: Any) -> Any:
    """1 for the tokens of printable ASCII, 0 for all others, the end of the answer among them."""
    letters = [tokens.convert_tokens_to_ids("Ġ" if byte == 0x20 else chr(byte)) for byte in range(0x20, 0x7F)]
    column = torch.zeros(VOCABULARY, 1)
    column[letters] = 1.0
    return column


def main() -> None:
    folder = Path(sys.argv[1])
    tokens = tokenizer()
    model(tokens).save_pretrained(folder)
    tokens.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR, indent=2))


if __name__ == "__main__":
    main()
