import pickle
import re

import pytest

from vlm_edge import errors
from vlm_edge.errors import (
    AnimationRefused,
    BackendTimeout,
    BackendUnavailable,
    BodyTooLarge,
    CachedMediaRefused,
    ConfigError,
    ContextExceeded,
    CorruptMedia,
    DecoderStopped,
    EdgeError,
    EmbeddedMediaRefused,
    ExtremeAspect,
    InvalidDataUrl,
    InvalidEncoding,
    InvalidJson,
    InvalidPath,
    MediaTooLarge,
    MissingDecoder,
    MissingExtra,
    NoRoomForFrames,
    NoRoomForPages,
    Overloaded,
    PackedTooTightly,
    RemoteMediaFailed,
    RemoteMediaRefused,
    RequestError,
    ServerError,
    TextTooLarge,
    ToolMediaRefused,
    TooManyImages,
    TooManyPages,
    TooManyValues,
    TooManyVideos,
    Unauthorized,
    UnexpectedMedia,
    UnknownModel,
    UnknownPath,
    UnknownProfile,
    UnsupportedEncoding,
    UnsupportedMedia,
    UnsupportedVideo,
    UploadTimeout,
    VideoStopped,
    VisionBudgetExceeded,
    naming,
)

# What clients rely on: one of each, with its code and status.
ANSWERS: list[tuple[EdgeError, str, int]] = [
    (InvalidJson("the body is not JSON"), "invalid_json", 400),
    (InvalidDataUrl("the base64 is not valid"), "invalid_data_url", 400),
    (UnsupportedMedia("a PDF"), "unsupported_media", 400),
    (UnsupportedVideo("a video of codec 'AV01'"), "unsupported_media", 400),
    (NoRoomForFrames(), "unsupported_media", 400),
    (ExtremeAspect(5_628, 28, 200), "unsupported_media", 400),
    (MissingDecoder("a PDF", "install the extra pdf"), "unsupported_media", 400),
    (TooManyPages(9, 8), "unsupported_media", 400),
    (NoRoomForPages(3), "unsupported_media", 400),
    (AnimationRefused(26), "unsupported_media", 400),
    (CorruptMedia("it is empty"), "corrupt_media", 400),
    (DecoderStopped("took too long"), "corrupt_media", 400),
    (VideoStopped("took too long"), "corrupt_media", 400),
    (MediaTooLarge("pixels", 400_000_000, 178_956_970), "media_too_large", 400),
    (TooManyImages(5, 4), "too_many_images", 400),
    (TooManyVideos(5, 4), "too_many_videos", 400),
    (RemoteMediaRefused("a URL of scheme 'ftp'"), "remote_media_refused", 400),
    (RemoteMediaFailed("its host answered 404"), "remote_media_failed", 422),
    (CachedMediaRefused("a uuid without data; send the data"), "cached_media_refused", 400),
    (EmbeddedMediaRefused(), "embedded_media_refused", 400),
    (ToolMediaRefused(), "tool_media_refused", 400),
    (UnexpectedMedia(), "unexpected_media", 400),
    (UnknownProfile("tiny", ["standard"]), "unknown_profile", 400),
    (InvalidPath(), "invalid_path", 400),
    (TooManyValues(65, 64), "body_too_large", 413),
    (UnknownPath("/v2/chat", ["/v1/chat/completions"]), "unknown_path", 404),
    (VisionBudgetExceeded("request", 40_000, 32_768), "vision_budget_exceeded", 400),
    (ContextExceeded(3_000, 500, 1_000, 4_096), "vision_budget_exceeded", 400),
    (Unauthorized(), "invalid_api_key", 401),
    (UploadTimeout(65, 30.0), "upload_timeout", 408),
    (BodyTooLarge(65, 64), "body_too_large", 413),
    (TextTooLarge(65, 64), "body_too_large", 413),
    (PackedTooTightly(65, 400), "body_too_large", 413),
    (InvalidEncoding("gzip", "it is cut short"), "invalid_encoding", 400),
    (UnsupportedEncoding("br"), "unsupported_encoding", 415),
    (Overloaded(9, 8), "overloaded", 503),
    (BackendUnavailable("cannot be reached"), "backend_unavailable", 502),
    (BackendTimeout(5.0), "backend_timeout", 504),
]
ONE_OF_EACH = [error for error, _, _ in ANSWERS]
INTERNAL: list[EdgeError] = [
    ConfigError("edge.toml: wrong"),
    UnknownModel("gpt-2"),
    MissingExtra("the gateway", "gateway"),
]


def kinds(root: type[EdgeError] = EdgeError) -> list[type[EdgeError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in kinds(child))]


@pytest.mark.parametrize(("error", "code", "status"), ANSWERS, ids=lambda value: str(value)[:20])
def test_each_error_knows_its_code_and_status(error: EdgeError, code: str, status: int) -> None:
    assert (error.code, error.status) == (code, status)


def test_the_samples_above_are_all_the_errors_there_are() -> None:
    abstract = {EdgeError, RequestError, ServerError}
    assert set(kinds()) - abstract == {type(error) for error in ONE_OF_EACH + INTERNAL}


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: error.code)
def test_what_the_client_can_mend_is_an_invalid_request(error: EdgeError) -> None:
    mendable = error.status < 500
    assert isinstance(error, RequestError if mendable else ServerError)
    assert error.type == ("invalid_request_error" if mendable else "server_error")


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn, stack = {}, [""]
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([│├└─ ]*)([A-Z]\w+)(?: |$)", line)
        if found and found[2].isalpha() and hasattr(errors, found[2]):
            depth = len(found[1]) // 4
            stack = [*stack[:depth], found[2]]
            drawn[found[2]] = stack[-2] if depth else ""
    real = {kind.__name__: "" if kind is EdgeError else kind.__bases__[0].__name__ for kind in kinds()}
    assert drawn == real


def test_an_error_names_its_place_before_its_message() -> None:
    error = InvalidJson("the body is not JSON", param="messages[0]")
    assert str(error) == "messages[0]: the body is not JSON"
    assert str(InvalidJson("the body is not JSON")) == "the body is not JSON"


def test_naming_gives_an_error_its_place() -> None:
    with pytest.raises(CorruptMedia) as caught, naming("messages[3].content[1]"):
        raise CorruptMedia("it is empty")
    assert caught.value.param == "messages[3].content[1]"


def test_naming_keeps_a_closer_place() -> None:
    with pytest.raises(CorruptMedia) as caught, naming("messages"), naming("messages[3].content[1]"):
        raise CorruptMedia("it is empty")
    assert caught.value.param == "messages[3].content[1]"


def test_naming_leaves_other_exceptions_alone() -> None:
    with pytest.raises(KeyError), naming("messages[0]"):
        raise KeyError("x")


@pytest.mark.parametrize(
    "error", [MediaTooLarge("bytes", 11, 7), TooManyImages(11, 7), VisionBudgetExceeded("request", 11, 7)]
)
def test_a_limit_says_what_was_found_and_what_is_allowed(error: EdgeError) -> None:
    assert re.search(r"\b11\b", error.message)
    assert re.search(r"\b7\b", error.message)


def test_too_many_images_begins_as_vllm_says_it() -> None:
    assert TooManyImages(5, 4).message.startswith("At most 4 image(s) may be provided in one prompt")


@pytest.mark.parametrize(
    "error",
    [
        UnknownProfile("x" * 10_000, ["standard"]),
        UnknownPath("/" + "x" * 10_000, ["/v1/chat/completions"]),
        UnsupportedEncoding("x" * 10_000),
    ],
    ids=lambda error: error.code,
)
def test_what_a_client_sends_is_not_echoed_at_length(error: EdgeError) -> None:
    assert "x" * 65 not in str(error)
    assert len(str(error)) < 250


@pytest.mark.parametrize("status_error", [Overloaded(9, 8), Overloaded(9, 8, retry_after_s=7)])
def test_overloaded_says_when_to_come_back(status_error: Overloaded) -> None:
    assert f"{status_error.retry_after_s} s" in status_error.message


@pytest.mark.parametrize("error", [CorruptMedia("it is empty"), InvalidDataUrl("the base64 is not valid")])
def test_what_a_worker_raises_comes_back_from_a_process(error: EdgeError) -> None:
    error.param = "messages[0].content[1]"
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert (str(back), back.param) == (str(error), error.param)


def test_every_error_comes_back_from_a_process() -> None:
    for error in ONE_OF_EACH + INTERNAL:
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
