"""
Template: a model's chat template, rendered as transformers does it, from messages as vLLM makes them.

Templates are of two kinds, which vLLM tells apart by their code: those that go through the parts of a message, and
those that take its text in one piece, with the placeholders of its pictures before it.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

Message = Mapping[str, Any]


class Unclear(Exception):
    """A template whose code does not tell what it does."""


class Template:
    """`render` gives the text of a prompt; None where the template refuses it. written: for a medium of each modality,
    where the template leaves that to its server."""

    def __init__(self, source: str, written: Mapping[str, str]) -> None:
        self.source, self.written = source, written

    def render(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> str | None:
        seen = Counter[str]()
        made = self._known([self._message(message, seen) for message in messages])
        try:
            return str(self._compiled.render({"tools": None, "documents": None, **variables, "messages": made}))
        except Exception:  # noqa: BLE001 - it is code of the model's maker, and raises what it likes
            return None

    @cached_property
    def takes_parts(self) -> bool:
        """Whether it goes through the parts of a message."""
        from jinja2 import TemplateError

        try:
            return any(True for _ in _loops_over_content(_environment().parse(self.source)))
        except (TemplateError, Unclear):
            return False

    @cached_property
    def _compiled(self) -> Any:
        return _environment().from_string(self.source)

    def _message(self, message: Message, seen: Counter[str]) -> Message:
        """seen: media of each modality in the messages before it."""
        parts = message.get("content", ())
        if not self.takes_parts:
            return {**message, "content": self._in_one_piece(parts, seen)}
        if message["role"] == "tool" and all(part["type"] == "text" for part in parts):
            return {**message, "content": "\n".join(part["text"] for part in parts)}
        return message

    def _known(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Where the template knows no developer, what one says is the system's, and that is one text before all."""
        developed = any(message["role"] == "developer" for message in messages)
        if not developed or '"developer"' in self.source or "'developer'" in self.source:
            return messages
        return _consolidated([_of_system(message) for message in messages])

    def _in_one_piece(self, parts: Sequence[Message], seen: Counter[str]) -> str:
        """Placeholders that the text does not hold already stand before it, one modality after the other; what is empty
        is left out."""
        text = "\n".join(part["text"] for part in parts if part["type"] == "text" and part["text"])
        placeholders = dict[str, list[str]]()
        for kind in (part["type"] for part in parts if part["type"] != "text"):
            seen[kind] += 1
            if self.written.get(kind):
                placeholders.setdefault(kind, []).append(self.written[kind].replace("{number}", f"{seen[kind]}"))
        wanted = Counter(one for of_kind in placeholders.values() for one in of_kind)
        missing = [one for one, number in wanted.items() for _ in range(number - text.count(one))]
        return "\n".join([*missing, *([text] if text else [])])


def _of_system(message: Message) -> Message:
    if message["role"] != "developer":
        return message
    return {name: value for name, value in message.items() if name != "tools"} | {"role": "system"}


def _consolidated(messages: Sequence[Message]) -> Sequence[Message]:
    if [message["role"] for message in messages].count("system") == 1 and messages[0]["role"] == "system":
        return messages
    texts = [_joined(message["content"]) for message in messages if message["role"] == "system"]
    merged = {"role": "system", "content": "\n\n".join(filter(None, texts))}
    return [merged, *(message for message in messages if message["role"] != "system")]


def _joined(content: Any) -> str:
    """The text of a message in one piece or in parts."""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content if "text" in part)


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
# assigned to, or over a `content` on its own. Where it meets a loop or an assignment to more than a name, it gives up.


def _loops_over_content(root: "nodes.Template") -> Iterator[str]:
    """The names of the parts in such loops. Raises Unclear."""
    from jinja2 import nodes

    items = list(_items(root))
    parameters = _content_parameters(root, items)
    for loop in root.find_all(nodes.For):
        own = loop.iter.name if isinstance(loop.iter, nodes.Name) else ""
        if any(_is(loop.iter, item, "content") for item in items) or own in parameters.get(id(loop), ("content",)):
            yield _plain(loop.target)


def _items(root: "nodes.Template") -> Iterator[str]:
    """The names of a message in loops over messages."""
    from jinja2 import nodes

    messages = ["messages", *_assigned(root, "messages")]
    for loop in root.find_all(nodes.For):
        if any(_is(loop.iter, name) for name in messages):
            yield _plain(loop.target)


def _content_parameters(root: "nodes.Template", items: Sequence[str]) -> Mapping[int, set[str]]:
    """Of each loop in a macro, the parameters that are given the content of a message."""
    from jinja2 import nodes

    found: dict[int, set[str]] = {}
    for macro in root.find_all(nodes.Macro):
        given = {name for name, value in _arguments(root, macro) if any(_is(value, item, "content") for item in items)}
        found |= {id(loop): given or found.get(id(loop), set()) for loop in macro.find_all(nodes.For)}
    return found


def _arguments(root: "nodes.Template", macro: "nodes.Macro") -> Iterator[tuple[str, "nodes.Node"]]:
    """What a macro is called with."""
    from jinja2 import nodes

    names = [argument.name for argument in macro.args]
    for call in root.find_all(nodes.Call):
        if _name(call.node) == macro.name:
            yield from zip(names, call.args, strict=False)
            yield from ((one.key, one.value) for one in call.kwargs if one.key in names)


def _assigned(root: "nodes.Template", name: str) -> Iterator[str]:
    """Variables that hold what `name` does, or a part of it."""
    from jinja2 import nodes

    found, waiting = {name}, [name]
    while waiting:
        known = waiting.pop()
        for assign in root.find_all(nodes.Assign):
            if _is(assign.node, known) and (target := _plain(assign.target)) not in found:
                found.add(target)
                waiting.append(target)
                yield target


def _plain(target: "nodes.Node") -> str:
    from jinja2 import nodes

    if not isinstance(target, nodes.Name):
        raise Unclear
    return target.name


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
