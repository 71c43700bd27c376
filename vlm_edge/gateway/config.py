"""The gateway's own settings."""

from urllib.parse import urlsplit

import msgspec

MAX_PORT = 65_535


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """backend: base URL of the vLLM server. ask_backend: for the context of its models, where the settings do not tell
    it. backend_api_key: for our own questions to it; requests bear their clients' keys.

    connect_timeout_s: until the backend takes the connection. first_byte_timeout_s: until its answer begins;
    idle_timeout_s: between two pieces of the answer. max_connections: to the backend at once.
    """

    backend: str = "http://127.0.0.1:8000"
    ask_backend: bool = True
    backend_api_key: str = ""
    host: str = "127.0.0.1"
    port: int = 8_080
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float = 600.0
    idle_timeout_s: float = 120.0
    max_connections: int = 1_024

    def __post_init__(self) -> None:
        if not _is_base_url(self.backend):
            raise ValueError(f"backend = {self.backend!r}: must be an http or https URL")
        if not 0 <= self.port <= MAX_PORT:
            raise ValueError(f"port = {self.port}: must be 0 to {MAX_PORT}")
        if min(self.connect_timeout_s, self.first_byte_timeout_s, self.idle_timeout_s) <= 0:
            raise ValueError("time-outs must be above 0")


def _is_base_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, or half an IPv6 address
        return False
