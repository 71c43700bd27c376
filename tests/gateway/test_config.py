import msgspec
import pytest

from vlm_edge.gateway.config import GatewaySettings


def of(**values: object) -> GatewaySettings:
    """Settings as they come from a file."""
    return msgspec.convert(values, GatewaySettings)


def test_the_settings_are_complete_without_a_file() -> None:
    settings = GatewaySettings()
    assert settings.backend == "http://127.0.0.1:8000"
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)


@pytest.mark.parametrize(
    "backend", ["http://vllm", "https://vllm.example:8443", "http://[::1]:8000", "http://h:80/base"]
)
def test_a_backend_is_an_http_url(backend: str) -> None:
    assert of(backend=backend).backend == backend


@pytest.mark.parametrize(
    "backend",
    [
        "",
        "vllm:8000",
        "localhost",
        "ftp://vllm",
        "http://",
        "http://:8000",
        "file:///etc/passwd",
        "http://vllm:99999",
        "http://vllm:port",
        "http://[::1",
    ],
)
def test_a_backend_that_is_none_is_refused_by_name(backend: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="backend"):
        of(backend=backend)


@pytest.mark.parametrize("name", ["connect_timeout_s", "first_byte_timeout_s", "idle_timeout_s"])
@pytest.mark.parametrize("seconds", [0, -1.5])
def test_a_time_out_is_above_zero(name: str, seconds: float) -> None:
    with pytest.raises(msgspec.ValidationError, match="time-outs"):
        of(**{name: seconds})


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_is_one(port: int) -> None:
    with pytest.raises(msgspec.ValidationError, match="port"):
        of(port=port)


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(msgspec.ValidationError, match="backends"):
        of(backends=["http://vllm"])
