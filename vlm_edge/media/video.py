"""
Video: the frames of a file, by OpenCV. The only module that knows it.

A file is opened twice. As packets, which costs next to nothing, it tells how many frames there are and when each is
shown, whatever its headers say. As pictures it is read forward, or from a frame that reading may begin with.

Source of the properties: OpenCV, modules/videoio/src/cap_ffmpeg_impl.hpp.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from math import ceil, sqrt
from threading import Lock
from typing import Any

import msgspec

from vlm_edge.errors import CorruptMedia, MediaTooLarge, UnsupportedVideo, VideoStopped
from vlm_edge.geometry import Size
from vlm_edge.media.profile import Sampling
from vlm_edge.media.sampling import (
    SEEK_BACK,
    Instant,
    Loader,
    Sample,
    by_motion,
    choose,
    length_s,
    looked_at,
    sample,
    window,
)
from vlm_edge.media.source import Source

# Containers that are opened. What is none of them may be a playlist, which leads FFmpeg to other files.
CONTAINERS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb".{4}ftypqt  ", re.DOTALL), "video/quicktime"),
    (re.compile(rb".{4}(?:ftyp|moov|mdat|wide|free|skip|pnot)", re.DOTALL), "video/mp4"),
    (re.compile(rb"\x1aE\xdf\xa3.{0,60}?\x42\x82.webm", re.DOTALL), "video/webm"),
    (re.compile(rb"\x1aE\xdf\xa3"), "video/x-matroska"),
    (re.compile(rb"RIFF.{4}AVI ", re.DOTALL), "video/x-msvideo"),
    (re.compile(rb"G.{187}G.{187}G", re.DOTALL), "video/mp2t"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
)
SNIFFED_BYTES = 512

# How tracks of sound, and of pictures, are marked in MP4 and in Matroska.
TRACKS = (
    (re.compile(rb"hdlr.{8}soun", re.DOTALL), re.compile(rb"hdlr.{8}vide", re.DOTALL)),
    (re.compile(rb"\x86.A_[A-Z]", re.DOTALL), re.compile(rb"\x86.V_[A-Z]", re.DOTALL)),
)

# Codecs that OpenCV's wheels open and cannot read.
LACKING = frozenset({"AV01", "av01"})
# Some of those that they do read.
READ = frozenset("h264 avc1 hevc hvc1 hev1 VP80 VP90 MJPG FMP4 mp4v".split())

OPEN_TIMEOUT_MS = READ_TIMEOUT_MS = 10_000
MAX_PACKETS = 2_000_000


# Containers with an index of the frames that reading may begin with; in others it may begin amid others.
SOUGHT = frozenset({"video/mp4", "video/quicktime", "video/webm", "video/x-matroska"})
# One whose packets do not tell in which order frames are shown: these are counted instead.
COUNTED = "video/x-msvideo"

# Longer ones are refused: of two frames that share more, OpenCV reads another rate than the one that is written.
MAX_SECONDS = 20 * 3_600

# Of a decoder: each holds frames of its own.
THREADS = 4

# Frames that lie so much of one off the even rate are not evenly timed.
UNEVEN = 0.1

# Of a frame on a sheet, and of the line below it, in pixels.
SHEET_SIDE, LABEL = 240, 20

# Motion is looked for in small grey pictures.
_SMALL = Size(64, 36)
_EPSILON_S = 5e-4
# FFmpeg opens nothing else: no file, no socket.
_OPTIONS, _CLOSED = "OPENCV_FFMPEG_CAPTURE_OPTIONS", "protocol_whitelist;none"
_environment = Lock()


class Clip(msgspec.Struct, frozen=True, kw_only=True):
    """A video and what is taken of it.

    size: upright, of square pixels. stored: as it is decoded. codec: its four letters. frames, seconds: of the window
    that is looked at. sought: whether it can be read from the middle. ends_early: the rest cannot be read. plain: it is
    as its headers say, upright, of square pixels, and evenly timed at declared_fps.
    """

    media_type: str
    file_bytes: int
    size: Size
    stored: Size
    codec: str
    frames: int
    seconds: float
    sample: Sample
    sought: bool
    plain: bool = False
    declared_fps: float = 0.0
    ends_early: bool = False

    @property
    def fps(self) -> float:
        """Of the video as it came, on average."""
        return self.frames / self.seconds if self.seconds > 0 else 1.0


class EndsEarly(Exception):
    """The frames behind `end_s` cannot be read, whatever the packets say."""

    def __init__(self, end_s: float) -> None:
        super().__init__(end_s)
        self.end_s = end_s


def media_type_of(source: Source) -> str:
    """By its first bytes; "" for what is no container that is opened."""
    head = source.read(0, SNIFFED_BYTES)
    return next((media_type for magic, media_type in CONTAINERS if magic.match(head)), "")


def open_clip(data: bytes, media_type: str, sampling: Sampling, loader: Loader, max_pixels: int) -> Clip:
    """Choose the frames of a file. Decodes none, but to look for motion.

    Raises CorruptMedia for what has no frames, UnsupportedVideo for a sound, MediaTooLarge for frames of more pixels,
    and EndsEarly.
    """
    cv2 = _cv2()
    with _failing(), _capture(data, packets=True) as capture:
        stored, codec = _size(capture), _codec(capture)
        declared, declared_fps = (capture.get(one) for one in (cv2.CAP_PROP_FRAME_COUNT, cv2.CAP_PROP_FPS))
        if stored.pixels > max_pixels:
            raise MediaTooLarge("pixels a frame", stored.pixels, max_pixels, "video")
        shape = capture.get(cv2.CAP_PROP_SAR_NUM), capture.get(cv2.CAP_PROP_SAR_DEN)
        times, keys = _packets(capture)
    if not times:
        raise CorruptMedia("it has no frames", "video")
    first, stop = window(times, sampling)
    if times[-1] - times[0] > MAX_SECONDS:
        raise MediaTooLarge("seconds", round(times[-1] - times[0]), MAX_SECONDS, "video")
    square, turned = _square(stored, shape), _turned(data)
    clip = Clip(
        media_type=media_type,
        file_bytes=len(data),
        size=Size(square.height, square.width) if turned % 180 else square,
        stored=stored,
        codec=codec,
        frames=stop - first,
        seconds=length_s(times[first:stop]),
        sample=choose(times, keys, sampling, loader),
        sought=media_type in SOUGHT and codec not in LACKING and abs(declared - len(times)) <= SEEK_BACK,
        declared_fps=declared_fps,
    )
    even = all(abs(shown * declared_fps - number) < UNEVEN for number, shown in enumerate(times))
    plain = even and declared == len(times) == clip.frames and clip.size == stored and not turned
    clip = msgspec.structs.replace(clip, plain=plain)
    if sampling.strategy == "uniform" or codec in LACKING:
        return clip
    looked = sample(times, keys, looked_at(times, sampling), clip.seconds)
    differences = _differences(data, clip, looked)
    taken = by_motion([one.at_s for one in looked.instants], differences, clip.seconds, sampling, loader)
    return msgspec.structs.replace(clip, sample=sample(times, keys, taken, clip.seconds))


def _packets(capture: Any) -> tuple[list[float], list[float]]:
    """When frames are shown, and those that reading may begin with. What an edit list hides comes before time 0."""
    cv2, times, keys = _cv2(), list[float](), list[float]()
    while len(times) < MAX_PACKETS and capture.grab():
        shown = capture.get(cv2.CAP_PROP_POS_MSEC) / 1e3
        if shown < -_EPSILON_S:
            continue
        times.append(shown)
        if capture.get(cv2.CAP_PROP_LRF_HAS_KEY_FRAME):
            keys.append(shown)
    return sorted(times), sorted(keys)


def _turned(data: bytes) -> int:
    """By how many degrees OpenCV turns frames; it tells only where it does."""
    with _capture(data) as capture:
        return int(capture.get(_cv2().CAP_PROP_ORIENTATION_META))


def _square(stored: Size, shape: tuple[float, float]) -> Size:
    """Of square pixels, and no side longer than it is stored; pixels that are nearly square are."""
    ratio = shape[0] / shape[1] if min(shape) > 0 else 1.0
    if abs(ratio - 1) < 0.02 or not 0.1 <= ratio <= 10:
        return stored
    if ratio > 1:
        return Size(stored.width, max(1, round(stored.height / ratio)))
    return Size(max(1, round(stored.width * ratio)), stored.height)


def _differences(data: bytes, clip: Clip, looked: Sample) -> list[float]:
    """How much each picture differs from the last one that did; the first from nothing."""
    cv2, differences, before = _cv2(), list[float](), None
    for frame in frames(data, clip, looked.instants, _SMALL):
        grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
        differences.append(255.0 if before is None else float(cv2.absdiff(grey, before).mean()))
        before = grey
    return differences


def frames(data: bytes, clip: Clip, instants: Sequence[Instant], size: Size) -> Iterator[Any]:
    """The pictures on the screen at these instants, in order, as arrays (height, width, 3) of BGR in uint8.

    Raises EndsEarly, and UnsupportedVideo for a codec that OpenCV does not have.
    """
    cv2, reader, picture = _cv2(), _Reader(data, clip), None
    with _failing(), reader:
        for instant in instants:
            if picture is None or instant.frame > reader.index:
                full = reader.read(instant)
                picture = cv2.resize(full, size, interpolation=cv2.INTER_AREA)
            yield picture


def frames_to_read(clip: Clip) -> int:
    """How many are decoded on the way to those that are taken, about."""
    read, before = 0, -1
    for instant in clip.sample.instants:
        ahead = instant.frame - before
        read += min(ahead, instant.frame - instant.key + 1) if clip.sought else ahead
        before = instant.frame
    return read


class _Reader:
    """A file as pictures, read in order."""

    def __init__(self, data: bytes, clip: Clip) -> None:
        self.data, self.clip = data, clip
        self.index, self.shown_s = -1, -1.0
        self._sought = clip.sought
        self._opened = _capture(data)
        self._capture = self._opened.__enter__()

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.__exit__(None, None, None)

    def read(self, instant: Instant) -> Any:
        """The frame of an instant; where it was lost, the next one."""
        if self._sought and instant.key > max(self.index, 0) and not self._goes_to(instant):
            self._begin_again()
        counted = instant.frame - self.index if self.clip.media_type == COUNTED else 0
        for _ in range(counted):
            self._grab()
        while not counted and self.shown_s < instant.shown_s - _EPSILON_S:
            self._grab()
        self.index = instant.frame
        read, picture = self._capture.retrieve()
        if not read:
            raise EndsEarly(self.shown_s)
        return picture

    def _goes_to(self, instant: Instant) -> bool:
        """Whether it could be sent there, or before it."""
        self._capture.set(_cv2().CAP_PROP_POS_MSEC, instant.shown_s * 1e3)
        try:
            self._grab()
        except (EndsEarly, UnsupportedVideo):
            return False
        return self.shown_s <= instant.shown_s + _EPSILON_S

    def _grab(self) -> None:
        if not self._capture.grab():
            if self.shown_s < 0 and self.clip.codec in READ:
                raise CorruptMedia("none of its frames can be", "video")
            if self.shown_s < 0:
                raise UnsupportedVideo(f"a video of codec {self.clip.codec!r}, for which there is no decoder here")
            raise EndsEarly(self.shown_s)
        self.shown_s = self._capture.get(_cv2().CAP_PROP_POS_MSEC) / 1e3

    def _begin_again(self) -> None:
        self._opened.__exit__(None, None, None)
        self._opened = _capture(self.data)
        self._capture = self._opened.__enter__()
        self.shown_s, self._sought = -1.0, False


def jpeg(picture: Any, quality: int, chroma: str) -> bytes:
    """A frame as a file."""
    cv2 = _cv2()
    sampling = cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444 if chroma == "4:4:4" else cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling]
    _, encoded = cv2.imencode(".jpg", picture, options)
    return bytes(encoded)


def as_jpeg(file: bytes) -> bytes:
    """A frame in another format, which servers take as well. Raises UnsupportedVideo for what is none."""
    import numpy as np

    with _failing():
        picture = _cv2().imdecode(np.frombuffer(file, np.uint8), _cv2().IMREAD_COLOR)
        if picture is None:
            raise UnsupportedVideo("a list of frames of which one cannot be read; send JPEGs")
        return jpeg(picture, 95, "4:4:4")


def on_canvas(picture: Any, canvas: Size, background: tuple[int, int, int]) -> Any:
    """In the upper left corner of a larger one."""
    height, width = picture.shape[:2]
    if (width, height) == canvas:
        return picture
    margins = 0, canvas.height - height, 0, canvas.width - width
    return _cv2().copyMakeBorder(picture, *margins, _cv2().BORDER_CONSTANT, value=background[::-1])


# A sheet


def sheet(files: Sequence[bytes], labels: Sequence[str]) -> bytes:
    """All frames in rows on one picture, a JPEG, each with its label."""
    import numpy as np

    cv2 = _cv2()
    pictures = [cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR) for file in files]
    height, width = pictures[0].shape[:2]
    scale = min(1.0, SHEET_SIDE / max(width, height))
    cell = Size(max(1, round(width * scale)), max(1, round(height * scale)))
    columns = ceil(sqrt(len(files) * cell.height / cell.width)) or 1
    rows = ceil(len(files) / columns)
    made = np.full((rows * (cell.height + LABEL), columns * cell.width, 3), 255, np.uint8)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        top, left = number // columns * (cell.height + LABEL), number % columns * cell.width
        small = cv2.resize(picture, cell, interpolation=cv2.INTER_AREA)
        made[top : top + cell.height, left : left + cell.width] = small
        place = left + 3, top + cell.height + LABEL - 6
        cv2.putText(made, label, place, cv2.FONT_HERSHEY_SIMPLEX, 0.45, (0, 0, 0), 1, cv2.LINE_AA)
    return jpeg(made, 88, "4:4:4")


# OpenCV


def _cv2() -> Any:
    import cv2

    return cv2


@contextmanager
def _failing() -> Iterator[None]:
    """Its errors are those of memory."""
    try:
        yield
    except _cv2().error:
        raise VideoStopped("failed, or took too much memory") from None


@contextmanager
def _capture(data: bytes, *, packets: bool = False) -> Iterator[Any]:
    """A file opened from memory, which must be held as long as it is read."""
    cv2, file = _cv2(), BytesIO(data)
    options = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, OPEN_TIMEOUT_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, READ_TIMEOUT_MS]
    options += [cv2.CAP_PROP_FORMAT, -1] if packets else [cv2.CAP_PROP_N_THREADS, THREADS]
    with _closed_protocols():
        capture = cv2.VideoCapture(file, cv2.CAP_FFMPEG, options)
    try:
        if not capture.isOpened():
            raise _refusal(data)
        yield capture
    finally:
        capture.release()
        file.close()


def _refusal(data: bytes) -> CorruptMedia | UnsupportedVideo:
    """Of a file that cannot be opened."""
    if any(sound.search(data) and not pictures.search(data) for sound, pictures in TRACKS):
        return UnsupportedVideo("a sound without pictures")
    return CorruptMedia("it is cut short or damaged", "video")


@contextmanager
def _closed_protocols() -> Iterator[None]:
    """The library reads them from the environment, where others of this process must find them as they were."""
    with _environment:
        before = os.environ.get(_OPTIONS)
        os.environ[_OPTIONS] = _CLOSED
        try:
            yield
        finally:
            if before is None:
                del os.environ[_OPTIONS]
            else:
                os.environ[_OPTIONS] = before


def _size(capture: Any) -> Size:
    cv2 = _cv2()
    width, height = (int(capture.get(one)) for one in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
    if min(width, height) < 1:
        raise CorruptMedia("its headers give it no width or no height", "video")
    return Size(width, height)


def _codec(capture: Any) -> str:
    code = int(capture.get(_cv2().CAP_PROP_FOURCC)) & 0xFFFFFFFF
    letters = code.to_bytes(4, "little").decode("latin-1")
    return "".join(letter for letter in letters if letter.isprintable()).strip()
