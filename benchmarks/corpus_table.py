"""
What becomes of each file of the corpus, through the library and through the middleware: outcome, time and memory.

    corpus_table.py [--corpus DIR] [--json] [FOLDER ...]

Each file has a process of its own, whose children count. A row is right if the outcome is one that the manifest names.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDERS = ("photos", "screenshots", "documents", "formats", "broken")
ALLOWED_S, ALLOWED_MB = 2.0, 600

# Refused, where the manifest would have it sent, for a reason of ours.
OURS = {"broken/webp_anim_16383x8000_2frames.webp": "half a gigabyte for its canvas"}

ONE = r"""
import asyncio, json, resource, sys, time
import httpx
from vlm_edge import Edge, EdgeError, EdgeMiddleware, Settings
from vlm_edge.media.data_url import build

async def app(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})

async def post(edge, body):
    transport = httpx.ASGITransport(EdgeMiddleware(app, edge=edge))
    async with httpx.AsyncClient(transport=transport, base_url="http://edge") as client:
        return await client.post("/v1/chat/completions", content=body, timeout=None)

def library(edge, data):
    try:
        picture = edge.picture(data)
        return f"{picture.size} {picture.media_type.removeprefix('image/')}"
    except EdgeError as error:
        return error.code

def middleware(edge, data):
    url = build("image/jpeg", data).decode()
    part = {"type": "image_url", "image_url": {"url": url}}
    body = json.dumps({"model": "qwen2_vl", "messages": [{"role": "user", "content": [part]}]})
    answer = asyncio.run(post(edge, body))
    return answer.headers["x-vlm-edge-media"] if answer.status_code == 200 else answer.json()["error"]["code"]

data = open(sys.argv[1], "rb").read()
edge = Edge(Settings(default_profile="document"))
edge.picture(open(sys.argv[3], "rb").read())  # the libraries are loaded
begin = time.perf_counter()
outcome = {"library": library, "middleware": middleware}[sys.argv[2]](edge, data)
seconds = time.perf_counter() - begin
edge.close()
peaks = [resource.getrusage(who).ru_maxrss // 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps([outcome, seconds, max(peaks)]))
"""

FIRST = Path(__file__).parent.parent / "vlm_edge" / "cli" / "pictures" / "leaf_8mp_phone.jpg"


def measured(file: Path, road: str) -> tuple[str, float, int]:
    """Outcome, seconds, and megabytes of the larger of the process and its children."""
    command = [sys.executable, "-c", ONE, str(file), road, str(FIRST)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        return f"died ({done.returncode})", 0.0, 0
    outcome, seconds, megabytes = json.loads(done.stdout)
    return outcome, seconds, megabytes


def is_expected(row: dict[str, Any], outcome: str) -> bool:
    accepted = {row["expect"], *(row.get("also_ok") or ())}
    if row.get("optional"):
        accepted.add("reject:unsupported_format")
    if outcome[0].isdigit() or outcome.startswith("images="):
        return "decode" in accepted
    refusable = any(one.startswith("reject") for one in accepted) or row["file"] in OURS
    return refusable and outcome.endswith(("media", "large", "url"))


def table(corpus: Path, folders: Sequence[str]) -> list[dict[str, Any]]:
    lines = (corpus / "manifest.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["class"] in folders]
    found = []
    for row in rows:
        for road in ("library", "middleware"):
            outcome, seconds, megabytes = measured(corpus / row["file"], road)
            right = is_expected(row, outcome) and seconds <= ALLOWED_S and megabytes <= ALLOWED_MB
            found.append(
                {"file": row["file"], "road": road, "expected": row["expect"], "outcome": outcome}
                | {"seconds": round(seconds, 2), "megabytes": megabytes, "right": right}
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    parser.add_argument("--corpus", type=Path, default=os.environ.get("VLM_EDGE_CORPUS"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.corpus:
        parser.error("--corpus, or VLM_EDGE_CORPUS, names the folder")
    rows = table(options.corpus, options.folders)
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        mark = " " if row["right"] else "!"
        print(
            f"{mark} {row['file']:55} {row['road']:10} {row['expected']:24} {row['outcome']:28}"
            f" {row['seconds']:6.2f} s {row['megabytes']:5} MB"
        )
    wrong = sum(not row["right"] for row in rows)
    print(f"{len(rows)} rows, {wrong} unexplained, or over {ALLOWED_S:g} s or {ALLOWED_MB} MB")


if __name__ == "__main__":
    main()
