"""
Errors: one tree; an error takes facts, not a sentence, and knows its answer.

EdgeError
├── ConfigError                    a settings file, profile or option is wrong (never over HTTP)
├── UnknownModel                   no family is known for a model name
├── MissingExtra                   an optional library is not installed
├── RequestError                   400, the client can mend it
│   ├── InvalidJson
│   ├── InvalidDataUrl
│   ├── UnsupportedMedia
│   │   └── ExtremeAspect          the model's processor refuses the shape
│   ├── CorruptMedia
│   ├── MediaTooLarge
│   ├── TooManyImages
│   ├── RemoteMediaRefused
│   ├── UnknownProfile
│   ├── UnknownPath                404
│   ├── VisionBudgetExceeded
│   ├── BodyTooLarge               413
│   │   └── TextTooLarge
│   └── UnsupportedEncoding        415
└── ServerError                    5xx, the client can only come back
    ├── Overloaded                 503, with Retry-After
    ├── BackendUnavailable         502
    └── BackendTimeout             504

A message says what was found, what is allowed and what to do. It never carries text of a library, a path or base64.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class EdgeError(Exception):
    """Base of everything that vlm_edge raises on purpose.

    `code` and `status` belong to the class; `param` names the place in the request (`messages[3].content[1]`).
    """

    code = "edge_error"
    status = 500
    type = "server_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def __str__(self) -> str:
        return f"{self.param}: {self.message}" if self.param else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Made of facts, an error cannot be made again of its message, as exceptions are when they are unpickled."""
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[EdgeError], args: tuple[Any, ...], state: dict[str, Any]) -> EdgeError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Give an error that passes through the place it is about, unless it knows a closer one."""
    try:
        yield
    except EdgeError as error:
        error.param = error.param or place
        raise


class ConfigError(EdgeError):
    code = "config_error"


class UnknownModel(EdgeError):
    code = "unknown_model"
    status = 400
    type = "invalid_request_error"

    def __init__(self, model: str, families: Iterable[str]) -> None:
        super().__init__(
            f"no family is known for the model {model!r}; name one of {', '.join(sorted(families))} in the settings"
        )
        self.model = model


class MissingExtra(EdgeError):
    code = "missing_extra"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'vlm-edge[{extra}]'")


class RequestError(EdgeError):
    code = "invalid_request"
    status = 400
    type = "invalid_request_error"


class InvalidJson(RequestError):
    code = "invalid_json"


class InvalidDataUrl(RequestError):
    code = "invalid_data_url"


class UnsupportedMedia(RequestError):
    code = "unsupported_media"

    def __init__(self, found: str) -> None:
        super().__init__(f"found {found}; send a JPEG, PNG, WebP, GIF, TIFF or AVIF picture")
        self.found = found


class ExtremeAspect(UnsupportedMedia):
    def __init__(self, width: int, height: int, allowed: int) -> None:
        RequestError.__init__(
            self,
            f"found a picture of {width}x{height}; the model takes sides of at most {allowed}:1; crop it or cut it up",
        )


class CorruptMedia(RequestError):
    code = "corrupt_media"

    def __init__(self, why: str) -> None:
        super().__init__(f"the picture cannot be read: {why}; send the whole, undamaged file")


class MediaTooLarge(RequestError):
    code = "media_too_large"

    def __init__(self, unit: str, found: int, allowed: int) -> None:
        super().__init__(f"the picture has {found} {unit}; at most {allowed} are allowed; send a smaller one")
        self.found = found
        self.allowed = allowed


class TooManyImages(RequestError):
    code = "too_many_images"

    def __init__(self, found: int, allowed: int) -> None:
        super().__init__(
            f"At most {allowed} image(s) may be provided in one prompt; found {found}, the history included; "
            "send fewer or drop old ones"
        )
        self.found = found
        self.allowed = allowed


class RemoteMediaRefused(RequestError):
    code = "remote_media_refused"

    def __init__(self, scheme: str) -> None:
        found = f"a URL of scheme {scheme[:16]!r}" if scheme else "no URL"
        super().__init__(
            f"found {found}; only data URLs are accepted; send data:image/jpeg;base64,<base64 of the file>"
        )


class UnknownProfile(RequestError):
    code = "unknown_profile"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no profile is called {name[:64]!r}; the profiles are {', '.join(sorted(known))}")


class UnknownPath(RequestError):
    code = "unknown_path"
    status = 404

    def __init__(self, path: str, known: Iterable[str]) -> None:
        super().__init__(f"requests to {path[:64]!r} are not known to carry pictures; those to {', '.join(known)} are")


class VisionBudgetExceeded(RequestError):
    code = "vision_budget_exceeded"

    def __init__(self, what: str, found: int, allowed: int) -> None:
        super().__init__(
            f"the {what} costs {found} vision tokens; at most {allowed} are allowed; "
            "send smaller or fewer pictures, or choose a smaller profile"
        )
        self.found = found
        self.allowed = allowed


class BodyTooLarge(RequestError):
    code = "body_too_large"
    status = 413

    def __init__(self, found: int, allowed: int) -> None:
        super().__init__(
            f"the body has {found} bytes or more; at most {allowed} are allowed; send smaller or fewer pictures"
        )


class TextTooLarge(BodyTooLarge):
    def __init__(self, found: int, allowed: int) -> None:
        RequestError.__init__(
            self, f"the body has {found} bytes beside its media; at most {allowed} are allowed; send less text"
        )


class UnsupportedEncoding(RequestError):
    code = "unsupported_encoding"
    status = 415

    def __init__(self, encoding: str) -> None:
        super().__init__(f"found Content-Encoding {encoding[:32]!r}; send the body uncompressed")


class ServerError(EdgeError):
    pass


class Overloaded(ServerError):
    code = "overloaded"
    status = 503

    def __init__(self, waiting: int, allowed: int, retry_after_s: int = 1) -> None:
        super().__init__(
            f"with this request {waiting} pictures would be under way; at most {allowed} may; "
            f"come back in {retry_after_s} s or more"
        )
        self.retry_after_s = retry_after_s


class BackendUnavailable(ServerError):
    code = "backend_unavailable"
    status = 502

    def __init__(self, why: str) -> None:
        super().__init__(f"the backend {why}; the request may be sent again")


class BackendTimeout(ServerError):
    code = "backend_timeout"
    status = 504

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"the backend did not answer within {waited_s:g} s; the request may be sent again")
