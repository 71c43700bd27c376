"""
How fast are vision tokens counted, and requests of twenty pictures planned and fitted?

Nothing is read and no pixel touched: sizes in, integers out. Counts are of 2,000 different sizes; plans of twenty
different ones, cold (every cache emptied before each plan) and warm. Where transformers is installed, its own
`smart_resize` counts the same sizes beside ours. Bars: 200,000 counts a second of Qwen2.5-VL, 0.3 ms a plan.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import cycle
from typing import Any

from vlm_edge import Settings, Size, pictures
from vlm_edge import layout as layouts
from vlm_edge.budget import Room
from vlm_edge.media.probe import Probe
from vlm_edge.pictures import Limits, Subject
from vlm_edge.plan import Plan, Rooms, check_budget, fitted, plan
from vlm_edge.tokens import FAMILIES

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
SIZES = [Size(300 + 37 * number % 4_000, 300 + 101 * number % 3_000) for number in range(2_000)]
SPELLS, SPELL = 10, 10  # a round of plans is cut into short spells, that one is found in which the machine is quiet
LIMITS = Limits(max_request_tokens=1_000_000)
CACHES = [cache for module in (layouts, pictures) for cache in vars(module).values() if hasattr(cache, "cache_clear")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side runs; the best is shown")
    arguments = parser.parse_args()
    found = {"counts a second": counts(arguments.rounds), "a plan of 20, ms": planning(arguments.rounds)}
    print(json.dumps(found, indent=1)) if arguments.json else show(found)


def counts(rounds: int) -> dict[str, float]:
    sides: dict[str, Callable[[Size], object]] = {name: family.rule.image for name, family in FAMILIES.items()}
    sides |= reference()
    return {name: len(SIZES) / best(partial(each, count), rounds) for name, count in sides.items()}


def each(count: Callable[[Size], object]) -> None:
    for size in SIZES:
        count(size)


def reference() -> dict[str, Callable[[Size], object]]:
    try:
        smart_resize = import_module("transformers.models.qwen2_vl.image_processing_qwen2_vl").smart_resize
    except ImportError:
        return {}
    return {"transformers' smart_resize": lambda size: smart_resize(size.height, size.width, 28, 3_136, 12_845_056)}


def planning(rounds: int) -> dict[str, float]:
    settings = Settings()
    model, profiles = settings.catalogue().get(MODEL).model, settings.profiles
    batches = [subjects(number) for number in range(50)]
    rooms: Rooms = {0: Room(16_384, 500, 500, 1_024)}
    turns = cycle(batches)

    def planned(name: str = "document") -> Plan:
        made = plan(next(turns), profiles[name], model, LIMITS)
        check_budget(made, LIMITS)
        return made

    def cold() -> Plan:
        forget()
        return planned()

    def fit(made: Plan) -> Plan:
        forget()
        return fitted(made, profiles["standard"], model.rule, LIMITS, rooms)

    def cost_ms(work: Callable[[], object]) -> float:
        return 1e3 * best(lambda: repeat(work), SPELLS * rounds) / SPELL

    over = planned("standard")
    return {
        "cold": cost_ms(cold),
        "warm": cost_ms(planned),
        "and fitted to a third less, cold": cost_ms(lambda: fit(over)),
    }


def subjects(number: int) -> Sequence[Subject]:
    """Twenty pictures of sizes that no other batch has."""
    sizes = [Size(4_032 - 3 * place - number, 3_024 - 5 * place - number) for place in range(20)]
    probes = [Probe(media_type="image/jpeg", size=size, file_bytes=3_000_000, srgb=True) for size in sizes]
    return [Subject(f"messages[0].content[{place}]", [probe]) for place, probe in enumerate(probes)]


def forget() -> None:
    for cache in CACHES:
        cache.cache_clear()


def repeat(work: Callable[[], Any]) -> None:
    for _ in range(SPELL):
        work()


def best(work: Callable[[], Any], rounds: int) -> float:
    return min(seconds(work) for _ in range(rounds))


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def show(found: dict[str, dict[str, float]]) -> None:
    rates = found["counts a second"]
    ours = rates["qwen2_5_vl"]
    for name, rate in sorted(rates.items(), key=lambda one: -one[1]):
        print(f"{name:32} {rate:12,.0f} counts/s {rate / ours:8.2f} x qwen2_5_vl")
    print(f"{'median of all':32} {statistics.median(rates.values()):12,.0f} counts/s")
    for name, cost_ms in found["a plan of 20, ms"].items():
        print(f"a plan of 20 pictures, {name:34} {cost_ms:8.3f} ms")


if __name__ == "__main__":
    main()
