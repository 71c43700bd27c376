"""The laws of the house: who may import whom, and who alone may touch what. Read from the source, not from a run."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.samples import ROOT

PACKAGE = ROOT / "vlm_edge"
MODULES = {
    ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(PACKAGE.rglob("*.py"))
}
TREES = {module: ast.parse(file.read_text("utf-8")) for module, file in MODULES.items()}

# Each level may import those before it; the rooms of one level do not import one another.
LEVELS: list[list[str]] = [
    ["errors", "geometry", "gateway.config"],
    ["requests", "media", "tokens", "isolation", "fetch", "access", "checkpoint"],
    ["layout", "drift"],
    ["budget", "clips", "pictures"],
    ["plan", "policies", "upload", "workers"],
    ["choice", "report", "estimate", "medium", "models"],
    ["footage"],
    ["settings", "context", "decision"],
    ["films"],
    ["edge"],
    ["middleware", "metrics", "gateway", "datasets", "cli", "__main__", "__init__"],
]
GROUND, STAGES, *_, EDGE, FACES = range(len(LEVELS))  # the faces are built on one another

OWNERS = {
    "pyvips": ["media.picture"],
    "PIL": ["media.pillow"],
    "cv2": ["media.video"],
    "av": ["media.pyav"],
    "pypdfium2": ["media.pages"],
    "aiohttp": [
        "gateway.upstream",
        "gateway.backend",
        "fetch",
    ],  # to trusted backends, to any hosts
    "ray": ["datasets.ray"],
    "tokenizers": ["tokens.text"],
    "jinja2": ["tokens.template"],
    "prometheus_client": ["metrics"],
    "pybase64": ["media.data_url"],
    "starlette": ["access", "upload", "middleware", "gateway.app", "gateway.upstream", "cli.demo", "cli.standin"],
    "typer": ["cli", "__main__"],
    "rich": ["cli", "__main__"],
}
# What starts processes.
STARTERS = ("isolation",)
# Policy, beside all that counts tokens but the clock of chat templates.
PURE = ("plan", "pictures", "clips", "layout", "budget", "context", "geometry", "choice")
# What reads files of the operator.
READERS = ("settings", "checkpoint")
# Its library takes an option from the environment alone: it stands there while a file is opened.
HANDS_OVER = "media.video"
# Its library's `open` is given bytes.
IN_MEMORY = "media.pyav"
# Below the edge in the order of imports, but where requests and remote files come in.
DOORS = ("access", "fetch", "upload")
# What counting needs of others: of pictures by their sizes; and of text.
SIZES_NEED = {"bisect", "collections", "math", "typing", "msgspec", "re", "vlm_edge", "functools", "itertools"}
TEXT_NEEDS = {"datetime", "importlib", "jinja2", "json", "tokenizers", "unicodedata"}
HEAVY = ("pyvips", "PIL", "cv2", "av", "pypdfium2", "ray", "numpy")


def room_of(module: str) -> tuple[int, str]:
    """The level and the room of a module: the longest name that it begins with."""
    named = [(level, room) for level, rooms in enumerate(LEVELS) for room in rooms if is_in(module, room)]
    assert named, f"{module} stands on no level"
    return max(named, key=lambda one: len(one[1]))


def is_in(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.") or (module == "" and room == "__init__")


def imports(tree: ast.AST, *, running: bool = False) -> Iterator[str]:
    """The names of all modules imported, wherever; or only of those that a run of the module's top level imports."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not (running and (is_function(node) or is_for_types(node))):
            yield from imports(node, running=running)


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def ours(module: str) -> set[str]:
    """The modules of the package that a module imports."""
    names = {name.removeprefix("vlm_edge.") for name in imports(TREES[module]) if name.startswith("vlm_edge.")}
    return {name for name in names if name in MODULES}


def theirs(module: str) -> set[str]:
    return {name.partition(".")[0] for name in imports(TREES[module])}


def below_edge() -> list[str]:
    return [module for module in MODULES if room_of(module)[0] < EDGE]


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_one_way(module: str) -> None:
    level, room = room_of(module)
    for other in ours(module):
        level_there, room_there = room_of(other)
        within = room_there == room or level == FACES
        assert level_there < level or (level_there == level and within), f"{module} imports {other}"


@pytest.mark.parametrize("stage", LEVELS[STAGES])
def test_the_stages_meet_in_the_plan_and_the_edge_alone(stage: str) -> None:
    for module in MODULES:
        if room_of(module)[1] == stage:
            others = {room_of(other)[1] for other in ours(module)}
            assert others <= {stage, *LEVELS[GROUND]}


def test_the_plan_and_the_edge_are_where_they_meet() -> None:
    """That the walk above sees imports at all."""
    assert {room_of(other)[1] for other in ours("layout")} >= {"media", "tokens"}
    assert {room_of(other)[1] for other in ours("edge")} >= {"requests", "media", "workers", "plan"}


@pytest.mark.parametrize("library", OWNERS)
def test_a_library_has_its_owners(library: str) -> None:
    users = [module for module in MODULES if library in theirs(module)]
    assert [user for user in users if not any(is_in(user, owner) for owner in OWNERS[library])] == []


@pytest.mark.parametrize("module", MODULES)
def test_heavy_libraries_are_imported_at_first_use(module: str) -> None:
    running = {name.partition(".")[0] for name in imports(TREES[module], running=True)}
    assert running.isdisjoint(HEAVY)


def test_the_owner_of_pixels_does_import_its_library() -> None:
    assert "pyvips" in theirs("media.picture")


@pytest.mark.parametrize("module", [one for one in below_edge() if one not in (*STARTERS, *READERS)])
def test_nothing_below_the_edge_reads_the_environment_or_a_file(module: str) -> None:
    names = {ast.unparse(node) for node in ast.walk(TREES[module]) if isinstance(node, ast.Name | ast.Attribute)}
    calls = {
        ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(TREES[module]) if isinstance(node, ast.Call)
    }
    assert names.isdisjoint({"os.environ", "os.getenv", "sys.argv"}) or module == HANDS_OVER
    assert calls.isdisjoint({"open", "read_text", "read_bytes", "write_text", "write_bytes"}) or module == IN_MEMORY
    assert theirs(module).isdisjoint({"pathlib", "tempfile", "socket", "subprocess", "tomllib"})


@pytest.mark.parametrize(
    "module",
    [
        "plan",
        "pictures",
        "clips",
        "layout",
        "budget",
        "context",
        "geometry",
        "choice",
        *[one for one in MODULES if is_in(one, "tokens") and one != "tokens.template"],
    ],
)
def test_policy_knows_no_clock_and_no_chance(module: str) -> None:
    assert theirs(module).isdisjoint({"time", "datetime", "random", "os", "threading", "asyncio", "secrets"})


def test_tokens_know_no_picture_and_no_request() -> None:
    used = {name for module in MODULES if is_in(module, "tokens") for name in theirs(module)}
    assert used <= SIZES_NEED | TEXT_NEEDS


@pytest.mark.parametrize("module", [module for module in below_edge() if module not in DOORS])
def test_only_the_edges_are_async(module: str) -> None:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not any(isinstance(node, kinds) for node in ast.walk(TREES[module]))


@pytest.mark.parametrize("module", below_edge())
def test_values_are_frozen(module: str) -> None:
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "msgspec.Struct" for base in node.bases):
            frozen = [keyword for keyword in node.keywords if keyword.arg == "frozen"]
            assert frozen, f"{node.name} is not frozen"
            assert ast.unparse(frozen[0].value) == "True"


@pytest.mark.parametrize("module", below_edge())
def test_no_module_keeps_a_state_that_changes(module: str) -> None:
    assert not any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(TREES[module]))


def test_neither_tests_nor_maintainers_tools_are_imported() -> None:
    for module in MODULES:
        assert theirs(module).isdisjoint({"tests", "benchmarks", "examples", "pytest", "hypothesis"})


# What a run loads


def loaded_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    code = f"import sys; {statement}; print(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path("/"))
    return set(run.stdout.split())


def test_the_package_loads_nothing_heavy() -> None:
    heavy = {*HEAVY, "starlette", "msgspec", "orjson", "aiohttp", "pybase64", "anyio", "typer"}
    assert loaded_after("import vlm_edge").isdisjoint(heavy)


def test_counting_tokens_loads_no_picture_and_no_web() -> None:
    statement = "from vlm_edge.tokens import lookup; lookup('qwen2_vl')"
    assert loaded_after(statement).isdisjoint({*HEAVY, "starlette", "aiohttp", "orjson", "pybase64"})


def test_an_edge_loads_no_web_and_no_picture_library_until_it_is_used() -> None:
    assert loaded_after("import vlm_edge; vlm_edge.Edge()").isdisjoint({*HEAVY, "starlette", "aiohttp", "uvicorn"})


def test_a_plan_loads_no_picture_library() -> None:
    png = "b'\\x89PNG\\r\\n\\x1a\\n' + bytes.fromhex('0000000d49484452000007d0000003e80802000000')"
    statement = f"import vlm_edge; vlm_edge.Edge().plan_picture({png} + bytes(20))"
    assert loaded_after(statement).isdisjoint(HEAVY)
