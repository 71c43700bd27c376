"""Dialogues: random requests of every dialect that makes prompts of messages, as clients and agents write them."""

from random import Random
from typing import Any

URL = "data:image/png;base64,AAAA"
WORDS = (
    "hi",
    "Größe",
    "你好",
    "",
    " x ",
    "<|image_pad|>",
    "<|im_end|>",
    "{{ 1 }}",
    "👩‍👩",
    "a\n\nb",
    '{"a":1}',
    "e\u0301\u00e9",
    "x-anthropic-billing-header: 1\nhi",
)
ARGUMENTS = ('{"a": "é", "b": [1, 2.50, {"c": null}]}', '{"x":1e5}', "", "{", "[1]", '{"n": 12345678901234567890}')


class Dialogues:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)

    def request(self) -> tuple[str, dict[str, Any]]:
        """A path and a body."""
        path, make = self.chance.choice(
            [
                *[("/v1/chat/completions", self.chat)] * 5,
                ("/tokenize", self.chat),
                ("/v1/embeddings", self.chat),
                *[("/v1/messages", self.anthropic)] * 2,
                *[("/v1/responses", self.response)] * 2,
            ]
        )
        return path, {"model": "m", **make()}

    def maybe(self, share: float, **fields: Any) -> dict[str, Any]:
        return fields if self.chance.random() < share else {}

    def text(self) -> str:
        return " ".join(self.chance.choice(WORDS) for _ in range(self.chance.randint(0, 4)))

    def picture(self) -> dict[str, Any]:
        bare = {"type": "image_url", "image_url": {"url": URL}}
        odd: list[dict[str, Any]] = [
            {"type": "input_image", "image_url": URL, "detail": "auto"},
            {"image_url": URL},
            {**bare, "uuid": "u"},
            {"type": "text", "text": "hi", "uuid": "u", "image_url": URL},
        ]
        return {**self.chance.choice([bare] * 6 + odd), **self.maybe(0.1, min_pixels=3_136)}

    def words(self) -> Any:
        kind = self.chance.choice(["text"] * 8 + ["input_text", "output_text", "refusal", "thinking", "loose", "more"])
        if kind == "loose":
            return self.text()
        if kind == "more":
            return {"type": "text", "text": self.text(), self.chance.choice(["cache_control", "image", "title"]): {}}
        return {"type": kind, (kind if kind in ("refusal", "thinking") else "text"): self.text()}

    def content(self) -> Any:
        kind = self.chance.random()
        if kind < 0.45:
            return self.text() if kind < 0.4 else None
        some = range(self.chance.randint(0, 4))
        return [self.picture() if self.chance.random() < 0.3 else self.words() for _ in some]

    def call(self) -> dict[str, Any]:
        arguments = self.chance.choice(ARGUMENTS)
        return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}

    def tool(self) -> dict[str, Any]:
        parameters = {"type": "object", "properties": {"q": {"type": "string", "description": "é"}}}
        more = {**self.maybe(0.7, description=self.text()), **self.maybe(0.8, parameters=parameters)}
        return {"type": "function", "function": {"name": "get", **more, **self.maybe(0.2, strict=True)}}

    def message(self, role: str = "") -> dict[str, Any]:
        role = role or self.chance.choice("user user user assistant assistant system tool developer custom".split())
        made = {"role": role, "content": self.content(), **self.maybe(0.1, name="bob")}
        made |= self.maybe(1 if role == "tool" else 0.05, tool_call_id="c1")
        if role == "assistant":
            made |= self.maybe(0.3, tool_calls=[self.call() for _ in range(self.chance.randint(0, 2))])
            made |= self.maybe(0.2, reasoning=self.chance.choice(["so", None, ""]))
            made |= self.maybe(0.2, reasoning_content="old")
        return made

    def chat(self) -> dict[str, Any]:
        if self.chance.random() < 0.5:
            turns = [self.message(role) for role in ("user", "assistant", "user")[: self.chance.choice((1, 3))]]
        else:
            turns = [self.message() for _ in range(self.chance.randint(1, 4))]
        variables = [{"enable_thinking": False}, {"add_generation_prompt": False}, {"reasoning_effort": "low"}, None]
        return {
            "messages": [*([self.message("system")] if self.chance.random() < 0.4 else []), *turns],
            **self.maybe(0.2, chat_template_kwargs=self.chance.choice(variables)),
            **self.maybe(0.15, reasoning_effort=self.chance.choice(["low", "none"])),
            **self.maybe(0.1, add_generation_prompt=self.chance.random() < 0.5),
            **self.maybe(0.1, documents=[{"title": "doc", "text": "x"}]),
            **self.maybe(0.2, tools=[self.tool() for _ in range(self.chance.randint(1, 2))]),
        }

    def block(self, role: str) -> dict[str, Any]:
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        words = {"type": "text", "text": self.text()}
        of_role: dict[str, list[dict[str, Any]]] = {
            "assistant": [
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": "é", "b": [1, 2]}},
                {"type": "thinking", "thinking": "hm", "signature": "s"},
            ],
            "user": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "found"},
                {"type": "tool_result", "tool_use_id": "c1", "content": [words, picture]},
                {"type": "tool_result", "tool_use_id": "c1"},
            ],
        }
        return self.chance.choice([words, words, picture, self.chance.choice(of_role[role])])

    def anthropic(self) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        for _ in range(self.chance.randint(1, 4)):
            role = self.chance.choice(["user", "user", "assistant"])
            blocks = [self.block(role) for _ in range(self.chance.randint(0, 3))]
            messages.append({"role": role, "content": self.chance.choice([self.text(), blocks])})
        schema = self.chance.choice([{"type": "object"}, {"properties": {"q": {"type": "string"}}}])
        return {
            "max_tokens": 5,
            "messages": messages,
            **self.maybe(0.4, system=self.chance.choice([self.text(), [{"type": "text", "text": self.text()}] * 2])),
            **self.maybe(0.2, tools=[{"name": "f", "description": self.text(), "input_schema": schema}]),
            **self.maybe(0.1, thinking={"type": "enabled", "budget_tokens": 1_024}),
            **self.maybe(0.1, output_config={"effort": "low"}),
            **self.maybe(0.1, chat_template_kwargs={"enable_thinking": False}),
            **self.maybe(0.05, add_generation_prompt=False),
        }

    def item(self) -> dict[str, Any]:
        picture = {"type": "input_image", "image_url": URL, "detail": "auto"}
        words = {"type": "input_text", "text": self.text()}
        said = {"type": "output_text", "text": "said", "annotations": []}
        output = self.chance.choice(["out", [words]])
        content = self.chance.choice([self.text(), [words, picture], [picture], [words, words]])
        return self.chance.choice(
            [
                *[{"role": "user", "content": content}] * 4,
                {"role": self.chance.choice(["system", "developer"]), "content": content},
                {"role": "assistant", "content": self.text()},
                {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [said]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": self.chance.choice(ARGUMENTS)},
                {"type": "function_call_output", "call_id": "c1", "output": output},
            ]
        )

    def response(self) -> dict[str, Any]:
        tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
        return {
            "input": self.chance.choice([self.text(), *[[self.item() for _ in range(self.chance.randint(1, 4))]] * 4]),
            **self.maybe(0.3, instructions=self.text()),
            **self.maybe(0.15, reasoning={"effort": "low"}),
            **self.maybe(0.15, tools=[tool]),
            **self.maybe(0.1, add_generation_prompt=False),
        }
