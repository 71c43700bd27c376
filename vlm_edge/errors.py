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
│   │   ├── UnsupportedVideo
│   │   ├── NoRoomForFrames        of a video, where only one medium may stand
│   │   ├── ExtremeAspect          the model's processor refuses the shape
│   │   ├── MissingDecoder         the format needs an extra that is not installed
│   │   ├── TooManyPages           a document of more pages than the profile takes
│   │   ├── NoRoomForPages         several pages where one picture may stand
│   │   └── AnimationRefused
│   ├── CorruptMedia
│   │   └── DecoderStopped         it took too long or too much memory
│   │       └── VideoStopped
│   ├── MediaTooLarge
│   ├── TooManyImages
│   ├── TooManyVideos
│   ├── RemoteMediaRefused
│   ├── RemoteMediaFailed          422
│   ├── CachedMediaRefused
│   ├── EmbeddedMediaRefused
│   ├── ToolMediaRefused
│   ├── UnexpectedMedia
│   ├── UnknownProfile
│   ├── UnknownPath                404
│   ├── InvalidPath
│   ├── VisionBudgetExceeded
│   │   └── ContextExceeded        together with the text and the answer
│   ├── Unauthorized               401
│   ├── UploadTimeout              408
│   ├── BodyTooLarge               413
│   │   ├── TextTooLarge
│   │   ├── TooManyValues
│   │   └── PackedTooTightly
│   ├── InvalidEncoding
│   └── UnsupportedEncoding        415
└── ServerError                    5xx, the client can only come back
    ├── Overloaded                 503, with Retry-After
    ├── BackendUnavailable         502
    └── BackendTimeout             504

A message says what was found, what is allowed and what to do. It never carries text of a library, a path or base64.
"""

from collections.abc import Iterable, Iterator, Sequence
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

    def __init__(self, model: str) -> None:
        super().__init__(
            f"no family is known for the model {model[:100]!r}, so its pictures cannot be counted; name its family in "
            "the settings, under [models]; `vlm-edge families` lists them"
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
        super().__init__(f"found {found}; send a PDF, or a JPEG, PNG, WebP, GIF, TIFF, AVIF or HEIC picture")
        self.found = found


class UnsupportedVideo(UnsupportedMedia):
    def __init__(self, found: str) -> None:
        RequestError.__init__(self, f"found {found}; send an MP4, MOV, WebM, MKV, AVI or MPEG-TS video, best of H.264")
        self.found = found


class NoRoomForFrames(UnsupportedMedia):
    def __init__(self) -> None:
        RequestError.__init__(self, "found a video where no pictures may stand, and its profile sends frames")
        self.found = "a video"


class ExtremeAspect(UnsupportedMedia):
    def __init__(self, width: int, height: int, allowed: int) -> None:
        RequestError.__init__(
            self,
            f"found a picture of {width}x{height}; the model takes sides of at most {allowed}:1; crop it or cut it up",
        )


class MissingDecoder(UnsupportedMedia):
    """A format that this installation cannot read; `how` tells its operator what to do."""

    def __init__(self, what: str, how: str) -> None:
        RequestError.__init__(self, f"found {what}, which this server cannot read; send it as PNG or JPEG, or {how}")
        self.found = what


class TooManyPages(UnsupportedMedia):
    def __init__(self, found: int, allowed: int, what: str = "pages") -> None:
        RequestError.__init__(
            self, f"found a document of {found} {what}; at most {allowed} are taken; send those that matter"
        )
        self.found = f"{found} {what}"


class NoRoomForPages(UnsupportedMedia):
    def __init__(self, found: int) -> None:
        RequestError.__init__(
            self, f"found a document of {found} pages where one picture may stand; send each page in a place of its own"
        )
        self.found = f"{found} pages"


class AnimationRefused(UnsupportedMedia):
    def __init__(self, frames: int) -> None:
        RequestError.__init__(self, f"found an animation of {frames} frames; send one frame as PNG or JPEG")
        self.found = f"{frames} frames"


class CorruptMedia(RequestError):
    code = "corrupt_media"

    def __init__(self, why: str, what: str = "picture") -> None:
        super().__init__(f"the {what} cannot be read: {why}; send the whole, undamaged file")


class DecoderStopped(CorruptMedia):
    """A decoder that was ended: it took too much, or fell over the file."""

    def __init__(self, why: str) -> None:
        RequestError.__init__(self, f"the picture cannot be read: decoding it {why}; send it as JPEG or PNG")
        self.why = why


class VideoStopped(DecoderStopped):
    def __init__(self, why: str) -> None:
        RequestError.__init__(self, f"the video cannot be read: decoding it {why}; send a shorter or smaller one")
        self.why = why


class MediaTooLarge(RequestError):
    code = "media_too_large"

    def __init__(self, unit: str, found: int, allowed: int, what: str = "picture") -> None:
        super().__init__(f"the {what} has {found} {unit}; at most {allowed} are allowed; send a smaller one")
        self.found = found
        self.allowed = allowed


class TooManyImages(RequestError):
    code = "too_many_images"

    def __init__(self, found: int, allowed: int, what: str = "prompt") -> None:
        super().__init__(
            f"At most {allowed} image(s) may be provided in one {what}; found {found}, the history included; "
            "send fewer or drop old ones"
        )
        self.found = found
        self.allowed = allowed


class TooManyVideos(RequestError):
    code = "too_many_videos"

    def __init__(self, found: int, allowed: int) -> None:
        super().__init__(
            f"At most {allowed} video(s) may be provided in one request; found {found}, the history included; "
            "send fewer or drop old ones"
        )
        self.found = found
        self.allowed = allowed


class RemoteMediaRefused(RequestError):
    """`found`: what stands where a data URL should, `a URL of scheme 'file'`; never the URL itself."""

    code = "remote_media_refused"

    def __init__(self, found: str) -> None:
        super().__init__(f"found {found}; send data:<media type>;base64,<base64 of the file>")


class RemoteMediaFailed(RequestError):
    """`why`: `its host answered 404`, `it did not arrive within 10 s`; never the URL or text of the other side."""

    code = "remote_media_failed"
    status = 422

    def __init__(self, why: str) -> None:
        super().__init__(f"the remote picture could not be fetched: {why}; send it as a data URL")


class CachedMediaRefused(RequestError):
    code = "cached_media_refused"

    def __init__(self, found: str) -> None:
        super().__init__(f"found {found}")


class EmbeddedMediaRefused(RequestError):
    code = "embedded_media_refused"

    def __init__(self) -> None:
        super().__init__("found embeddings, whose cost cannot be known; send the picture, video or sound itself")


class ToolMediaRefused(RequestError):
    code = "tool_media_refused"

    def __init__(self) -> None:
        super().__init__("found media in a tool's answer; only text is accepted there; send them in a user message")


class UnexpectedMedia(RequestError):
    """A data URL in a request to a path that is not known to carry media."""

    code = "unexpected_media"

    def __init__(self) -> None:
        super().__init__("found a data URL in a request to a path that carries no media; send it to a path that does")


class UnknownProfile(RequestError):
    code = "unknown_profile"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no profile is called {name[:64]!r}; the profiles are {', '.join(sorted(known))}")


class UnknownPath(RequestError):
    code = "unknown_path"
    status = 404

    def __init__(self, path: str, known: Iterable[str]) -> None:
        paths = ", ".join(path for path in known if path.startswith("/"))
        super().__init__(f"requests to {path[:64]!r} are not known to carry pictures; those to {paths} are")


class InvalidPath(RequestError):
    code = "invalid_path"

    def __init__(self) -> None:
        super().__init__("the path of the URL has control characters or a '#', or does not begin with a slash")


class VisionBudgetExceeded(RequestError):
    """biggest: the places of the pictures that cost most, and their tokens."""

    code = "vision_budget_exceeded"

    def __init__(self, what: str, found: int, allowed: int, biggest: Sequence[tuple[str, int]] = ()) -> None:
        super().__init__(
            f"the {what} costs {found} vision tokens; at most {allowed} are allowed{_biggest(biggest)}; "
            "send smaller or fewer pictures, or choose a smaller profile"
        )
        self.found = found
        self.allowed = allowed


class ContextExceeded(VisionBudgetExceeded):
    """text: tokens of the prompt beside its pictures, as far as they are sure."""

    def __init__(
        self, found: int, text: int, reserved: int, allowed: int, biggest: Sequence[tuple[str, int]] = ()
    ) -> None:
        RequestError.__init__(
            self,
            f"the prompt needs {found + text + reserved} tokens: {found} vision tokens, {text} of text, {reserved} "
            f"reserved for the answer; the model's context allows {allowed}{_biggest(biggest)}; send smaller or fewer "
            "pictures or less text, ask for a shorter answer, or choose a smaller profile",
        )
        self.found = found
        self.text = text
        self.reserved = reserved
        self.allowed = allowed


def _biggest(pictures: Sequence[tuple[str, int]]) -> str:
    named = ", ".join(f"{tokens} at {place}" for place, tokens in pictures if place)
    return f"; the biggest: {named}" if named else ""


class Unauthorized(RequestError):
    code = "invalid_api_key"
    status = 401

    def __init__(self) -> None:
        super().__init__("no valid API key; send the header 'Authorization: Bearer <key>'")


class UploadTimeout(RequestError):
    code = "upload_timeout"
    status = 408

    def __init__(self, received: int, waited_s: float) -> None:
        super().__init__(f"{received} bytes of the body came within {waited_s:g} s, and not all; send it faster")


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


class TooManyValues(BodyTooLarge):
    def __init__(self, found: int, allowed: int) -> None:
        RequestError.__init__(
            self,
            f"the body has {found} objects, lists and keys, or their signs in its text; at most {allowed} are allowed",
        )


class PackedTooTightly(BodyTooLarge):
    def __init__(self, received: int, ratio: int) -> None:
        RequestError.__init__(
            self, f"the body unpacks to more than {ratio} times its {received} bytes; send it uncompressed"
        )


class InvalidEncoding(RequestError):
    code = "invalid_encoding"

    def __init__(self, encoding: str, why: str) -> None:
        super().__init__(f"the body is not valid {encoding}: {why}; send it whole and undamaged, or uncompressed")


class UnsupportedEncoding(RequestError):
    code = "unsupported_encoding"
    status = 415

    def __init__(self, encoding: str) -> None:
        super().__init__(f"found Content-Encoding {encoding[:32]!r}; send the body as gzip, deflate or uncompressed")


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
