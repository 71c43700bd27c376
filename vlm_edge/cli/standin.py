"""A stand-in for a vLLM server: it answers chat requests with what it received. For the demo and the examples."""

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vlm_edge.media import data_url
from vlm_edge.media.probe import probe
from vlm_edge.requests.openai import find_chat


async def chat(request: Request) -> Response:
    body = orjson.loads(await request.body())
    received = [_seen(part.url) for part in find_chat(body) if part.url]
    message = {"role": "assistant", "content": f"I received {len(received)} picture(s).", "received": received}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    answer = {"id": "chatcmpl-stand-in", "object": "chat.completion", "created": 0, "model": body.get("model")}
    return Response(orjson.dumps({**answer, "choices": [choice]}), media_type="application/json")


def _seen(url: str) -> dict[str, object]:
    found = probe(data_url.parse(url))
    return {"media_type": found.media_type, "size": list(found.size), "bytes": found.file_bytes}


app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
