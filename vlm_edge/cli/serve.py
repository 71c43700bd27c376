"""vlm-edge serve: the gateway."""

import ctypes
import logging
import os
import socket
import sys
from contextlib import suppress
from typing import Annotated, Any

import msgspec
import typer

from vlm_edge.cli import options
from vlm_edge.errors import ConfigError, MissingExtra
from vlm_edge.gateway.config import GatewaySettings
from vlm_edge.settings import Settings

M_ARENA_MAX = -8  # of glibc's malloc.h

Backend = Annotated[str | None, typer.Option("--backend", "-b", help="URL of the vLLM server.")]
Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(help="Port to listen on.")]


def command(config: options.Config = None, backend: Backend = None, host: Host = None, port: Port = None) -> None:
    """Serve the gateway in front of a vLLM server."""
    settings = _with(options.load(config), backend=backend, host=host, port=port)
    try:
        import uvicorn

        from vlm_edge.gateway.app import create_app
    except ImportError as error:
        raise MissingExtra("the gateway", "gateway") from error
    _limit_arenas()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    gateway = settings.gateway
    server = uvicorn.Config(
        create_app(settings),
        log_level="warning",
        access_log=False,
        server_header=False,  # both are the backend's to set
        date_header=False,
        timeout_graceful_shutdown=30,
    )
    with _listener(gateway.host, gateway.port) as listener, suppress(KeyboardInterrupt):
        port = listener.getsockname()[1]
        typer.echo(f"vlm-edge: http://{gateway.host}:{port} -> {gateway.backend}", err=True)
        uvicorn.Server(server).run([listener])


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None


def _limit_arenas() -> None:
    """glibc keeps an arena a thread, and libvips' large buffers leave holes in each; two need far less memory."""
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt:
            mallopt(M_ARENA_MAX, 2)


def _with(settings: Settings, **options_given: Any) -> Settings:
    given = {name: value for name, value in options_given.items() if value is not None}
    try:
        gateway = msgspec.convert(msgspec.structs.asdict(settings.gateway) | given, GatewaySettings)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from None
    return msgspec.structs.replace(settings, gateway=gateway)
