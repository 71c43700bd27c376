"""
Template: a model's chat template, rendered as transformers does it, from messages as vLLM makes them.

Templates are of two kinds, which vLLM tells apart by their code: those that go through the parts of a message, and
those that take its text in one piece, with the placeholders of its pictures before it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

Message = Mapping[str, Any]


class Template:
    """`render` gives the text of a prompt; None where the template refuses it."""

    def __init__(self, source: str, placeholder: str) -> None:
        self.source, self.placeholder = source, placeholder

    def render(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> str | None:
        made = [self._message(message) for message in messages]
        try:
            return str(self._compiled.render({"tools": None, "documents": None, **variables, "messages": made}))
        except Exception:  # noqa: BLE001 - it is code of the model's maker, and raises what it likes
            return None

    @cached_property
    def takes_parts(self) -> bool:
        """Whether it goes through the parts of a message."""
        from jinja2 import TemplateError

        try:
            return any(_loops_over_content(_environment().parse(self.source)))
        except TemplateError:
            return False

    @cached_property
    def _compiled(self) -> Any:
        return _environment().from_string(self.source)

    def _message(self, message: Message) -> Message:
        parts = message.get("content", ())
        if message["role"] == "tool" and all(part["type"] == "text" for part in parts):
            return {**message, "content": "\n".join(part["text"] for part in parts)}
        return message if self.takes_parts else {**message, "content": self._in_one_piece(parts)}

    def _in_one_piece(self, parts: Sequence[Message]) -> str:
        """Placeholders that the text does not hold already stand before it."""
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        media = sum(part["type"] != "text" for part in parts)
        missing = max(0, media - text.count(self.placeholder)) if self.placeholder else 0
        return "\n".join([self.placeholder] * missing + ([text] if text else []))


def _environment() -> "Environment":
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what the assistant said, for training."""

        tags = frozenset({"generation"})  # type: ignore[assignment]

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

        def _same(self, caller: Any) -> str:
            return str(caller())

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
    """jinja's own filter escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **how)


# As vLLM looks for it (renderers/hf.py): a loop over `message.content` in a loop over `messages`, over what they were
# assigned to, or over a `content` on its own.


def _loops_over_content(root: "nodes.Template") -> Iterator[bool]:
    from jinja2 import nodes

    messages = {"messages", *_assigned(root, "messages")}
    loops = list(root.find_all(nodes.For))
    items = {_name(loop.target) for loop in loops if any(_is(loop.iter, name) for name in messages)}
    in_macros = {id(loop) for macro in root.find_all(nodes.Macro) for loop in macro.find_all(nodes.For)}
    for loop in loops:
        yield any(_is(loop.iter, item, "content") for item in items)
        yield id(loop) not in in_macros and isinstance(loop.iter, nodes.Name) and loop.iter.name == "content"
    for macro in root.find_all(nodes.Macro):
        named = set(_content_parameters(root, macro, items))
        yield from (_name(loop.iter) in named for loop in macro.find_all(nodes.For))


def _content_parameters(root: "nodes.Template", macro: "nodes.Macro", items: set[str]) -> Iterator[str]:
    """The parameters of a macro that it is given the content of a message in."""
    from jinja2 import nodes

    names = [argument.name for argument in macro.args]
    for call in root.find_all(nodes.Call):
        if _name(call.node) == macro.name:
            given = [*zip(names, call.args, strict=False), *((one.key, one.value) for one in call.kwargs)]
            yield from (name for name, value in given if any(_is(value, item, "content") for item in items))


def _assigned(root: "nodes.Template", name: str) -> Iterator[str]:
    """Variables that hold what `name` does, or a part of it."""
    from jinja2 import nodes

    found, waiting = {name}, [name]
    while waiting:
        known = waiting.pop()
        for assign in root.find_all(nodes.Assign):
            target = _name(assign.target)
            if target and target not in found and _is(assign.node, known):
                found.add(target)
                waiting.append(target)
                yield target


def _name(node: Any) -> str:
    name = getattr(node, "name", "")
    return name if isinstance(name, str) else ""


def _is(node: Any, name: str, key: str = "") -> bool:
    """Whether an expression is a variable, or its attribute `key`, filtered, tested or sliced."""
    from jinja2 import nodes

    if isinstance(node, nodes.Filter | nodes.Test):
        return node.node is not None and _is(node.node, name, key)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _is(node.node, name, key)
    if not key:
        return isinstance(node, nodes.Name) and node.name == name
    if isinstance(node, nodes.Getitem):
        return _is(node.node, name) and isinstance(node.arg, nodes.Const) and node.arg.value == key
    return isinstance(node, nodes.Getattr) and node.attr == key and _is(node.node, name)
