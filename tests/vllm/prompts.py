"""
Prompts: what vLLM's own code makes of requests, without a model. Run in vLLM's environment: prompts.py JOBS.json.

Prints a JSON list, an answer a job: the text of a prompt and its media, the kind of a template, or that it is refused.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call,no-untyped-def,misc"

import json
import logging
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import vllm.renderers.chat_utils as chat_utils
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages, construct_tool_dicts
from vllm.entrypoints.pooling.embed.protocol import EmbeddingChatRequest
from vllm.entrypoints.serve.tokenize.protocol import TokenizeChatRequest
from vllm.multimodal.media.video import VideoMediaIO
from vllm.multimodal.processing import PromptReplacement
from vllm.multimodal.video import VIDEO_LOADER_REGISTRY
from vllm.multimodal.video_decoders.base import VideoSourceMetadata, VideoTargetMetadata
from vllm.renderers.hf import _detect_content_format, safe_apply_chat_template
from vllm.tokenizers import get_tokenizer

MODEL = SimpleNamespace(enable_prompt_embeds=False)
DEFAULT_FRAMES = signature(VideoMediaIO.__init__).parameters["num_frames"].default


class Parser(chat_utils.BaseMultiModalContentParser):
    """Writes a placeholder for each medium, and reads none."""

    model_config = MODEL

    def __init__(self, seen: list[str], placeholder: str) -> None:
        super().__init__()
        self.seen, self.placeholder = seen, placeholder

    def see(self, modality: str) -> None:
        self.seen.append(modality)
        self._add_placeholder(modality, self.placeholder.replace("{number}", f"{len(self.seen)}"))


for method in chat_utils.BaseMultiModalContentParser.__abstractmethods__ - {"model_config"}:
    modality = next(one for one in ("image", "video", "audio", "prompt_embeds") if one in method)
    setattr(Parser, method, lambda self, *_, modality=modality: self.see(modality))
Parser.__abstractmethods__ = frozenset()


@cache
def tokenizer(checkpoint: str) -> Any:
    return AutoTokenizer.from_pretrained(checkpoint)


def of_chat(kind: Any) -> Callable[[Any, str], tuple[Any, Any, Any]]:
    def read(body: Any, _: str) -> tuple[Any, Any, Any]:
        request = kind.model_validate(body)
        return request, request.messages, request.tools if "tools" in kind.model_fields else None

    return read


def of_anthropic(body: Any, template: str) -> tuple[Any, Any, Any]:
    merges = AnthropicServingMessages._detect_merge_inline_system(template)
    read = AnthropicMessagesRequest.model_validate(body)
    request = AnthropicServingMessages.to_chat_completion_request(read, merge_inline_system=merges)
    return request, request.messages, request.tools


def of_response(body: Any, _: str) -> tuple[Any, Any, Any]:
    request = ResponsesRequest.model_validate(body)
    messages = construct_input_messages(request_instructions=request.instructions, request_input=request.input)
    return request, messages, construct_tool_dicts(request.tools, request.tool_choice)


READ: dict[str, Callable[[Any, str], tuple[Any, Any, Any]]] = {
    "/v1/chat/completions": of_chat(ChatCompletionRequest),
    "/tokenize": of_chat(TokenizeChatRequest),
    "/v1/embeddings": of_chat(EmbeddingChatRequest),
    "/v1/messages": of_anthropic,
    "/v1/responses": of_response,
}


def rendered(path: str, body: Any, template: str, checkpoint: str, placeholder: str) -> dict[str, Any]:
    """The text of a request's prompt."""
    request, messages, tools = READ[path](body, template)
    shown = tools and [tool if isinstance(tool, dict) else tool.model_dump() for tool in tools]
    defaults = {"tools": shown, "tokenize": False}
    variables = request.build_chat_params(None, "auto").with_defaults(defaults).get_apply_chat_template_kwargs()
    seen: list[str] = []
    made: list[Any] = []
    tracker = SimpleNamespace(create_parser=lambda **_: Parser(seen, placeholder))
    kind = _detect_content_format(template, default="string")
    for message in messages:
        made += chat_utils._parse_chat_message_content(message, tracker, kind, interleave_strings=False)
    chat_utils._postprocess_messages(made)
    given = {**variables, "chat_template": template, "tokenize": False}
    return {"text": safe_apply_chat_template(MODEL, tokenizer(checkpoint), made, **given), "media": len(seen)}


def kind(template: str) -> dict[str, Any]:
    return {"kind": _detect_content_format(template, default="string")}


def named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def placeholder(model: str, number: int) -> dict[str, Any]:
    """What is written for a picture where the template leaves it to vLLM."""
    return {"placeholder": named(model).get_placeholder_str("image", number)}


@cache
def vocabulary_of(path: str) -> Any:
    return PreTrainedTokenizerFast(tokenizer_file=path, bos_token="<s>", eos_token="</s>")


def applied(processor: str, vocabulary: str, text: str, targets: list[str], contents: list[str]) -> dict[str, Any]:
    """Tokens of a prompt in which each target has made place for its content, and those of the contents."""
    words = vocabulary_of(vocabulary)
    maker: Any = object.__new__(named(processor))
    of_hf = SimpleNamespace(tokenizer=words)
    maker.info = SimpleNamespace(get_tokenizer=lambda: words, get_hf_processor=lambda **_: of_hf)
    targets_ids, contents_ids = (
        [words.encode(one, add_special_tokens=False) for one in of] for of in (targets, contents)
    )
    updates = [
        [PromptReplacement(modality="image", target=target, replacement=content).resolve(index)]
        for index, (target, content) in enumerate(zip(targets_ids, contents_ids, strict=True))
    ]
    ids = words.encode(text, add_special_tokens=False)
    if "molmo" in processor:
        ids = maker._postprocess_prompt(ids)
    made, places = maker._apply_prompt_updates(ids, {"image": updates})
    assert len(places["image"]) == len(targets)
    return {"tokens": len(made), "vision_tokens": sum(map(len, contents_ids))}


def counted(folder: str, messages: list[Any], tools: list[Any] | None, variables: dict[str, Any]) -> dict[str, Any]:
    """Tokens of messages by a checkpoint's own files, as its server reads them."""
    words = get_tokenizer(folder)
    names = {"tokenizer_revision": None, "code_revision": None, "tokenizer": folder, "model": folder}
    config = SimpleNamespace(**names, trust_remote_code=False, hf_config=SimpleNamespace(model_type="qwen2_5_vl"))
    text = safe_apply_chat_template(config, words, messages, tools=tools, tokenize=False, **variables)
    return {"tokens": len(words.encode(text, add_special_tokens=False))}


def kept(loader: str, frames: int, fps: float) -> dict[str, Any]:
    """Which frames of a video a loader takes, as it is set from the start."""
    maker: Any = VIDEO_LOADER_REGISTRY.load(loader)
    defaults = {name: one.default for name, one in signature(maker.load_bytes).parameters.items()}
    own = {"fps": defaults["fps"], "max_duration": defaults.get("max_duration", 300)}
    target = VideoTargetMetadata(num_frames=DEFAULT_FRAMES, **own)
    source = maker._prepare_source(VideoSourceMetadata(frames, fps, frames / fps))
    return {"kept": [int(index) for index in maker.compute_frames_index_to_sample(source, target)]}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "rendered": rendered,
    "kind": kind,
    "placeholder": placeholder,
    "applied": applied,
    "counted": counted,
    "kept": kept,
}


def answered(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return JOBS[job.pop("job")](**job)
    except Exception as error:  # noqa: BLE001 - whatever it is, the server would refuse
        return {"refused": f"{type(error).__name__}: {error}"}


def main() -> None:
    logging.disable(logging.CRITICAL)
    jobs = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    print(json.dumps([answered(job) for job in jobs]))


if __name__ == "__main__":
    main()
