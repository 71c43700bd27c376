"""
Does the gateway's memory stay flat? 500 photo requests of mixed sizes through a real gateway and a stand-in backend.

Prints the resident memory after 100, 200, 300, 400 and 500 requests, 4 at a time.
"""

import asyncio
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from bench_road import free_port, wait_for
from common import CHAT_PATH, arguments, chat, photos, show

BACKEND = """
import sys, uvicorn
from vlm_edge.cli.standin import app
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
"""

REQUESTS, AT_ONCE, EVERY = 500, 4, 100


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


async def send(url: str, bodies: list[bytes], pid: int) -> list[float]:
    """The resident memory of a process after each hundred requests."""
    seen: list[float] = []
    async with httpx.AsyncClient(timeout=120) as client:
        for start in range(0, REQUESTS, AT_ONCE):
            batch = itertools.islice(itertools.cycle(bodies), start, start + AT_ONCE)
            answers = await asyncio.gather(*(client.post(url, content=body) for body in batch))
            assert all(answer.status_code == 200 for answer in answers)
            if (start + AT_ONCE) % EVERY == 0:
                seen.append(resident_mb(pid))
    return seen


def measure(bodies: list[bytes]) -> list[float]:
    backend_port, port = free_port(), free_port()
    backend = subprocess.Popen([sys.executable, "-c", BACKEND, str(backend_port)])
    command = ["serve", "--backend", f"http://127.0.0.1:{backend_port}", "--port", str(port)]
    gateway = subprocess.Popen([sys.executable, "-m", "vlm_edge", *command], stderr=subprocess.DEVNULL)
    try:
        wait_for(backend_port)
        wait_for(port)
        return asyncio.run(send(f"http://127.0.0.1:{port}{CHAT_PATH}", bodies, gateway.pid))
    finally:
        gateway.terminate()
        backend.terminate()


def main() -> None:
    asked = arguments(__doc__)
    bodies = [chat(data) for data in photos(asked.photos, (0.3, 34))]
    seen = measure(bodies)
    figures = ", ".join(f"{(index + 1) * EVERY}: {value:.0f} MB" for index, value in enumerate(seen))
    growth = seen[-1] / seen[0]
    result: dict[str, Any] = {"question": f"resident memory of the gateway, {len(bodies)} photos in turn"}
    show([{**result, "figures": figures, "result": f"{growth:.2f} x from 100 to {REQUESTS}"}], asked.json)


if __name__ == "__main__":
    main()
