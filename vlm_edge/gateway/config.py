"""The gateway's own settings."""

from urllib.parse import urlsplit

import msgspec


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """backend: base URL of the vLLM server. connect_timeout_s: until the backend takes the connection.
    first_byte_timeout_s: until its answer begins; idle_timeout_s: between two pieces of the answer. max_connections:
    to the backend at once.
    """

    backend: str = "http://127.0.0.1:8000"
    host: str = "127.0.0.1"
    port: int = 8_080
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float = 600.0
    idle_timeout_s: float = 120.0
    max_connections: int = 1_024

    def __post_init__(self) -> None:
        parts = urlsplit(self.backend)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"backend = {self.backend!r}: must be an http or https URL")
        if min(self.connect_timeout_s, self.first_byte_timeout_s, self.idle_timeout_s) <= 0:
            raise ValueError("time-outs must be above 0")
