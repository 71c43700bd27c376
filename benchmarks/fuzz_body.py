"""
Fuzz: bodies of every dialect, damaged at random, through everything that reads a body before a pixel is touched.

What must hold of each: nothing but an EdgeError is raised; a body that is cut holds the same media as when it is parsed
whole; what is spliced in where something stood is read there, and what stood there changes no byte. Every finding is
printed once, with the smallest body that still shows it; `--folder` keeps those bodies as files. Exits 1 on findings.

    python benchmarks/fuzz_body.py --seconds 600 --seed 7
"""

import argparse
import base64
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from vlm_edge.edge import Edge
from vlm_edge.errors import EdgeError
from vlm_edge.pictures import Limits
from vlm_edge.requests.body import Body, parse
from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.requests.part import MediaPart
from vlm_edge.requests.stray import holds_data_url
from vlm_edge.settings import Settings

PICTURE = Path(__file__).parent.parent / "vlm_edge" / "cli" / "pictures" / "screenshot_transparent.png"
BASE64 = base64.b64encode(PICTURE.read_bytes()[:9_000]).decode()  # its headers, and enough to be cut
PNG = f"data:image/png;base64,{BASE64}"
GIF = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
REMOTE = "https://a.test/b.png"
WORDS = "word " * 2_000

SETTINGS = (
    Settings(),
    Settings(
        remote="pass",
        embeds="pass",
        uuid="namespace",
        history="keep_last",
        limits=Limits(max_images=2, max_total_images=9),
    ),
    Settings(remote="pass", embeds="pass", tool_media="refuse", limits=Limits(max_text_bytes=2_000)),
)

# What is written into bodies, anywhere
JSON_TOKENS = (
    '{ } [ ] , : null true NaN -Infinity 1e400 [] 7 "type" "url" "source" "messages" "content" "text" "body"'.split()
)
STRING_TOKENS = r'" \" \\ \ \/ \u \ud83d \u0022 \u005c ;base64, data: data:image/png;base64, %2B == file:///a'.split()
PART_TOKENS = '"image_url" "input_image" "input_audio" "prompt_embeds" "media_type" "uuid":"u", "uuid":null,'.split()
LONG_TOKENS = ["9" * 30, "[" * 50, '{"a":' * 50, " " * 5_000, "A" * 5_000, BASE64[:4_096], BASE64[:2_100], GIF, PNG]
ODD_TOKENS = ["\n", "\0", "é", "\ufeff", REMOTE, '"reasoning":{}', '"run-batch"', f'"{WORDS}\\"{WORDS}"']
TOKENS = [*JSON_TOKENS, *STRING_TOKENS, *PART_TOKENS, *LONG_TOKENS, *ODD_TOKENS]

# What is put in the place of a value
PARTS: list[Any] = [
    {"image_url": GIF, "uuid": 7},
    {"type": "text", "image_url": PNG, "uuid": "u"},
    {"type": "input_text", "text": "a", "video_url": GIF, "uuid": "u"},
    {"type": "prompt_embeds", "data": "A"},
    {"type": "image", "source": {"data": BASE64}},
    {"type": []},
    {"type": {}},
    {"type": None},
    {"url": PNG},
    {"url": None},
    {"data": BASE64},
]
WORDS_OF_PARTS = (
    "image_url input_image input_audio image_embeds text image url base64 tool_result tool run-batch u".split()
)
URLS = [PNG, GIF, REMOTE, BASE64, BASE64[:3_000], "file:///a", "/a", ";base64,", "\ud83d", ""]
TEXTS = [WORDS, f'{WORDS}"{WORDS}', f'{BASE64}"{BASE64}', f";base64,{BASE64}", "/v1/responses"]
VALUES: list[Any] = [None, [], {}, 7, True, 1e300, 10**30, [[]], [None], *PARTS, *WORDS_OF_PARTS, *URLS, *TEXTS]


class Case(NamedTuple):
    path: str
    raw: bytes


Check = Callable[[Case], None]


class Broken(Exception):
    """Something that must hold of every body does not hold of this one."""


# What is fuzzed: a body or two for each dialect


def _image(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **more}


def _messages(*parts: Any, role: str = "user") -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "You see."},
        {"role": role, "content": [{"type": "text", "text": "a"}, *parts]},
    ]


_AUDIO = {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}, "uuid": "u"}
_VIDEO = {"video_url": f"data:video/mp4;base64,{BASE64}"}
_BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}}
_REMOTE_BLOCK = {"type": "image", "source": {"type": "url", "url": REMOTE}}
_CHAT = _messages(_image(PNG, uuid="u"), _AUDIO, _image(REMOTE), {"image_url": GIF, "uuid": 7}, _VIDEO, role="tool")
_EMBEDDED = [{"role": "assistant", "content": "a", "reasoning": {"type": "prompt_embeds", "data": BASE64}}]
_ITEMS = [
    {"role": "user", "content": [{"type": "input_image", "image_url": PNG}, {"type": "input_text", "text": WORDS}]},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": GIF}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
]
_BLOCKS = [_BLOCK, {"type": "tool_result", "content": [_BLOCK, _REMOTE_BLOCK]}, {"type": "text", "text": WORDS}]
_SIDE = {"content": [_image(PNG), {"type": "image_embeds", "image_embeds": BASE64}]}
_FLAT = [{"type": "image_url", "url": PNG, "uuid": "u"}, {"type": "video_url", "url": REMOTE}]

SEEDS: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [{"model": "m", "messages": [*_CHAT, *_EMBEDDED]}, {"messages": _messages(_image(PNG))}],
    "/v1/chat/completions/batch": [{"messages": [_messages(_image(PNG)), _messages(_image(GIF), _image(GIF))]}],
    "/v1/responses": [{"model": "m", "input": _ITEMS}],
    "/v1/messages": [{"model": "m", "messages": [{"role": "user", "content": _BLOCKS}]}],
    "/v1/completions": [{"prompt_embeds": [BASE64, "AAAA"]}, {"prompt": WORDS, "prompt_embeds": BASE64}],
    "/v1/embeddings": [{"input": _messages(_image(PNG))}, {"messages": [_messages(_image(PNG))]}],
    "/score": [{"query": _SIDE, "documents": [_SIDE, "a"]}, {"text_1": [_SIDE, _SIDE], "text_2": [_SIDE, _SIDE]}],
    "/v2/embed": [{"images": [PNG, GIF]}, {"inputs": [{"content": [_image(PNG), {"type": "text", "text": "a"}]}]}],
    "/cohere/v2/chat": [{"messages": _messages(_image(PNG), _image(GIF))}],
    "/v1/systemone": [{"state": WORDS, "images": [PNG, GIF, REMOTE], "audio": [REMOTE], "videos": [GIF]}],
    "/inference/v1/generate": [{"content_parts": _FLAT}, {"features": {"mm_hashes": {"image": ["a", BASE64]}}}],
    "/invocations": [{"messages": _messages(_image(PNG))}, {"query": _SIDE, "documents": [_SIDE]}],
    "run-batch": [{"url": "/v1/messages", "body": {"messages": [{"role": "user", "content": _BLOCKS}]}}],
}


def seeds() -> list[Case]:
    """Each path with the bodies of its dialect."""
    of_find = {ENDPOINTS[path].find: bodies for path, bodies in SEEDS.items()}
    return [
        Case(path, json.dumps(body, separators=style).encode())
        for path, dialect in ENDPOINTS.items()
        for body in of_find[dialect.find]
        for style in ((",", ":"), (", ", ": "))
    ]


# How bodies are damaged


def flipped(random: Random, raw: bytes) -> bytes:
    at = random.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << random.randrange(8)]) + raw[at + 1 :]


def truncated(random: Random, raw: bytes) -> bytes:
    return raw[: random.randrange(len(raw))]


def removed(random: Random, raw: bytes) -> bytes:
    start, stop = _range(random, raw)
    return raw[:start] + raw[stop:]


def doubled(random: Random, raw: bytes) -> bytes:
    start, stop = _range(random, raw)
    return raw[:stop] + raw[start:]


def inserted(random: Random, raw: bytes) -> bytes:
    at = random.choice((_structural, _anywhere))(random, raw)
    return raw[:at] + random.choice(TOKENS).encode("utf-8", "surrogatepass") + raw[at:]


def replaced(random: Random, raw: bytes) -> bytes:
    """A whole JSON string or word is another: what is left often is JSON."""
    start = _structural(random, raw)
    stop = min((at for mark in b',:}]"' if (at := raw.find(mark, start + 1)) >= 0), default=len(raw))
    return raw[:start] + random.choice(TOKENS).encode("utf-8", "surrogatepass") + raw[stop:]


def escaped(random: Random, raw: bytes) -> bytes:
    at = _anywhere(random, raw)
    return raw[:at] + b"\\u%04x" % raw[at] + raw[at + 1 :]


def moved(random: Random, raw: bytes) -> bytes:
    start, stop = _range(random, raw)
    at, rest = _structural(random, raw), raw[:start] + raw[stop:]
    return rest[:at] + raw[start:stop] + rest[at:]


def revalued(random: Random, raw: bytes) -> bytes:
    """One value is another, or gone, or stands twice; what is left is JSON."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return inserted(random, raw)
    if not isinstance(value, dict | list) or not value:
        return inserted(random, raw)
    holder, step = random.choice(list(_members(value)))
    new = random.choice(VALUES)
    if isinstance(holder, list) and random.random() < 0.3:
        holder.insert(step, random.choice((new, holder[step])))
    elif isinstance(holder, dict) and random.random() < 0.3:
        holder[random.choice(KEYS)] = random.choice((new, holder.pop(step)))
    else:
        holder[step] = new
    style = random.choice(((",", ":"), (", ", ": "), (",\r\n", ":\t")))
    return json.dumps(value, separators=style).encode()


KEYS = "type uuid url image_url source data media_type content output role text messages input images documents".split()


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each member of an object or list, with that."""
    values = [value]
    while values:
        holder = values.pop()
        steps = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        yield from ((holder, step) for step in steps)
        values += [holder[step] for step in steps if isinstance(holder[step], dict | list)]


MUTATIONS = (
    flipped,
    truncated,
    removed,
    doubled,
    inserted,
    inserted,
    replaced,
    replaced,
    escaped,
    moved,
    *[revalued] * 9,
)


def mutated(random: Random, case: Case, others: list[Case]) -> Case:
    raw = case.raw
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        raw = random.choice(MUTATIONS)(random, raw) or b"{"
    if random.random() < 0.05:
        other = random.choice(others).raw
        raw = raw[: _structural(random, raw)] + other[_structural(random, other) :]
    path = random.choice(others).path if random.random() < 0.05 else case.path
    return Case(path, raw[: 4 * 1024 * 1024])


def _anywhere(random: Random, raw: bytes) -> int:
    return random.randrange(len(raw))


def _structural(random: Random, raw: bytes) -> int:
    """Where a string begins or ends, most of a body being payload."""
    at = raw.find(b'"', _anywhere(random, raw))
    for _ in range(random.randrange(12)):
        at = raw.find(b'"', at + 1)
    return max(at, 0) + random.randrange(2)


def _range(random: Random, raw: bytes) -> tuple[int, int]:
    start, stop = sorted(random.choice((_structural, _anywhere))(random, raw) for _ in range(2))
    return start, stop


# What must hold


def is_read(case: Case) -> None:
    """The same media are found in a body that is cut and in the whole, and in the same places."""
    cut = _found(case.path, lambda: Body.read(case.raw).value)
    whole = _found(case.path, lambda: parse(case.raw))
    if cut is None or whole is None:
        return
    if [_shape(part) for part in cut] != [_shape(part) for part in whole]:
        what = "fewer" if len(cut) < len(whole) else "more" if len(cut) > len(whole) else "other"
        dialect = ENDPOINTS[case.path].find
        raise Broken(
            f"{what} media are found in the cut body than in the whole by {dialect.__module__} {dialect.__name__}"
        )
    if cut and ENDPOINTS[case.path].holds_none(case.raw):
        raise Broken("a glance sees no media where there are some")


def _found(path: str, read: Callable[[], Any]) -> list[MediaPart] | None:
    try:
        value = read()
    except EdgeError:
        return None
    return list(ENDPOINTS[path].find(value)) if isinstance(value, dict) else None


def _shape(part: MediaPart) -> tuple[Any, ...]:
    return part.part, part.modality, part.source, part.url is None, part.embeds, part.uuid is None


def is_spliced(case: Case) -> None:
    """Strings written back change no byte, and new ones are read where they were written."""
    try:
        body = Body.read(case.raw)
    except EdgeError:
        return
    if not isinstance(body.value, dict):
        return
    sources = {part.source for part in ENDPOINTS[case.path].find(body.value) if part.url is not None}
    places = body.places(sources)
    if body.splice({place: case.raw[place.start : place.stop] for place in places.values()}) != case.raw:
        raise Broken("what is written back changes the body")
    spliced = body.splice(dict.fromkeys(places.values(), b'"NEW"'))
    for source in sources:
        _expect_new(spliced, source)


def _expect_new(spliced: bytes, source: tuple[str | int, ...]) -> None:
    try:
        value = parse(spliced)
    except EdgeError:
        return  # it was none before: what was wrong stands inside a payload
    try:
        for step in source:
            value = value[step]
    except (LookupError, TypeError):
        value = None
    if value != "NEW":
        raise Broken("what is written is not read where it was written")


def is_searched(case: Case) -> None:
    holds_data_url(case.raw)


def planning(edge: Edge) -> Check:
    def is_planned(case: Case) -> None:
        found = edge.find(case.path, case.raw)
        if found is not None:
            edge.plan(edge.open(found), [])

    return is_planned


def outcome(check: Check, case: Case) -> str:
    """What a check finds: "" if all is well, else where it broke; the same for the same fault."""
    try:
        check(case)
    except EdgeError:
        return ""
    except Broken as broken:
        return str(broken)
    except Exception as error:  # noqa: BLE001
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno} ({frame.name})"
    return ""


def shrunk(check: Check, case: Case, finding: str, tries: int = 2_000) -> Case:
    """The case without what it does not take, halves first."""
    size = len(case.raw) // 2
    while size and tries > 0:
        for start in range(0, len(case.raw), size):
            smaller = case._replace(raw=case.raw[:start] + case.raw[start + size :])
            tries -= 1
            if outcome(check, smaller) == finding:
                case = smaller
                break
        else:
            size //= 2
    return case


# The run


def cases(random: Random, seconds: float) -> Iterator[Case]:
    """The seeds, and then damaged ones; some are damaged again."""
    pool = seeds()
    yield from pool
    originals, end = len(pool), time.monotonic() + seconds
    while time.monotonic() < end:
        case = mutated(random, random.choice(pool), pool)
        yield case
        if random.random() < 0.02:
            pool.append(case)
        if len(pool) > 20 * originals:
            del pool[originals:]


def run(seconds: float, seed: int, checks: Mapping[str, Check]) -> tuple[int, dict[str, Case]]:
    """How many bodies were tried, and one for each finding."""
    count, findings = 0, dict[str, Case]()
    for case in cases(Random(seed), seconds):
        count += 1
        for name, check in checks.items():
            finding = outcome(check, case)
            if finding and f"{name}: {finding}" not in findings:
                findings[f"{name}: {finding}"] = shrunk(check, case, finding)
    return count, findings


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long")
    parser.add_argument("--seed", type=int, default=0, help="the same seed tries the same bodies in the same order")
    parser.add_argument("--folder", type=Path, help="where to keep the bodies of findings")
    return parser.parse_args()


def _show(finding: str, case: Case, folder: Path | None) -> None:
    text = repr(case.raw)
    print(f"{finding}\n    {case.path} {text if len(text) <= 500 else f'{text[:300]} … {text[-150:]}'}")
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{sha256(case.raw).hexdigest()[:12]}.json").write_bytes(case.raw)


def main() -> int:
    asked = _arguments()
    plans = {f"plan {number}": planning(Edge(settings)) for number, settings in enumerate(SETTINGS)}
    checks = {"read": is_read, "splice": is_spliced, "search": is_searched, **plans}
    count, findings = run(asked.seconds, asked.seed, checks)
    for finding, case in findings.items():
        _show(finding, case, asked.folder)
    print(f"{count} bodies, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
