"""Footage: one video on its way: what came, where it stands, the work on it, and what is written there."""

from collections.abc import Sequence
from functools import partial

import msgspec
import orjson

from vlm_edge.clips import LISTED_FPS, ClipPlan, Form
from vlm_edge.errors import CachedMediaRefused, CorruptMedia, MediaTooLarge, NoRoomForFrames, UnsupportedVideo, naming
from vlm_edge.media import data_url, mp4, pyav, video
from vlm_edge.media.data_url import File, Payload
from vlm_edge.media.probe import media_type_of as picture_type_of
from vlm_edge.media.probe import probe
from vlm_edge.media.profile import Profile, Sampling
from vlm_edge.media.sampling import Loader
from vlm_edge.media.source import Bytes
from vlm_edge.media.video import Clip
from vlm_edge.medium import Medium
from vlm_edge.requests.body import Body, Place
from vlm_edge.requests.part import MediaPart, picture_part

# What is decoded of a video is many pixels, each quickly: these count as one of a slow picture.
EASE = 8

# How a list of frames begins, and how many may be in it.
LIST = "data:video/jpeg;"
MAX_LISTED = 4_096

# Right behind a time: less than frames ever last.
BEHIND_S = 2e-3

# Pictures that move and that OpenCV reads as videos.
ANIMATIONS = frozenset({"image/gif", "image/png"})


class FrameList(msgspec.Struct, frozen=True):
    """A client's own frames, `data:video/jpeg;base64,<one>,<another>`, as the video that servers make of them: one a
    second (vllm/multimodal/media/video.py)."""

    frames: Sequence[Payload]

    @property
    def size(self) -> int:
        return sum(frame.size for frame in self.frames)

    def decode(self) -> bytes:
        """Raises UnsupportedVideo for frames that are no pictures of one size."""
        files = [frame.decode() for frame in self.frames]
        found = [probe(Bytes(file)) for file in files]
        if len({one.size for one in found}) > 1:
            raise UnsupportedVideo("a list of frames that are not of one size")
        pairs = zip(files, found, strict=True)
        jpegs = [file if one.media_type == "image/jpeg" else video.as_jpeg(file) for file, one in pairs]
        return mp4.pack(jpegs, found[0].size, LISTED_FPS)

    def canonical(self, media_type: str, data: bytes) -> bool:
        return False


Source = Payload | File | FrameList


class Footage(msgspec.Struct, frozen=True):
    """place: of the string that holds the data. whole: of the part, where others may take its place. anew: it came as a
    picture, and a part of its own is written for it."""

    part: MediaPart
    payload: Source
    media_type: str
    place: Place
    whole: Place | None
    anew: bool = False

    def check_room(self, form: Form, *, named: bool) -> None:
        """Raises NoRoomForFrames where no pictures can stand; a name that is kept would be that of one of them."""
        if form == "frames" and self.whole is None:
            raise NoRoomForFrames
        if form == "frames" and named and self.part.uuid is not None:
            raise CachedMediaRefused("a uuid for a video that is sent as pictures; leave it out")

    def takes_whole_part(self, planned: ClipPlan) -> bool:
        """Whether all of its part is written anew."""
        return planned.form == "frames" or self.anew

    def opening(self, sampling: Sampling, loader: Loader, max_pixels: int, end_s: float | None) -> "partial[Clip]":
        """The work to choose its frames, for a worker. end_s: of what can be read, where that is known."""
        place = self.part.place
        return partial(open_video, self.payload, self.media_type, sampling, loader, max_pixels, place, end_s)

    def job(self, planned: ClipPlan, profile: Profile) -> "partial[Cut | float]":
        """The work on its frames, for a worker."""
        return partial(prepare_video, self.payload, planned, profile)

    def strings(self, planned: ClipPlan, cut: "Cut", *, labels: bool) -> dict[Place, bytes]:
        """What to write for it."""
        if planned.form != "frames" and not self.anew:
            return {self.place: cut.strings[0]} if cut.strings else {}
        assert self.whole
        if planned.form != "frames":
            return {self.whole: b'{"type":"video_url","video_url":{"url":%s}}' % cut.strings[0]}
        instants = planned.clip.sample.instants
        texts = [self._label(instant.at_s) if labels else () for instant in instants]
        kind = self.part.context.picture
        parts = [[*text, picture_part(kind, one, cut.media_type)] for text, one in zip(texts, cut.strings, strict=True)]
        return {self.whole: b",".join(part for pair in parts for part in pair)}

    def _label(self, at_s: float) -> Sequence[bytes]:
        """The time of a frame, as text before it; where text may stand."""
        kind = self.part.context.note
        return [orjson.dumps({"type": kind, "text": f"<{at_s:.1f} seconds>"})] if kind else []


class Cut(msgspec.Struct, frozen=True):
    """What a worker returns: JSON strings to write, one, one a frame, or none to leave what is there; the files' type,
    and their bytes together."""

    strings: Sequence[bytes]
    media_type: str
    size_bytes: int


def open_footage(body: Body, parts: Sequence[MediaPart], max_bytes: int) -> Sequence[Footage]:
    """The videos that these parts hold. Raises the RequestErrors of what is none."""
    if not parts:
        return []
    places, wholes, found = body.places({part.source for part in parts}), body.places({part.part for part in parts}), []
    for part in parts:
        with naming(part.place):
            cut = places[part.source].cut
            payload = _payload(part.url or "", body.payload(cut) if cut else None)
            if payload.size > max_bytes:
                raise MediaTooLarge("bytes", payload.size, max_bytes, "video")
            whole = wholes[part.part] if part.context.picture else None
            kind = mp4.MEDIA_TYPE if isinstance(payload, FrameList) else kind_of(payload)
            found.append(Footage(part, payload, kind, places[part.source], whole))
    return found


def _payload(url: str, text: bytes | memoryview | None) -> Payload | FrameList:
    head, _, rest = url.partition(",")
    if head.lstrip()[: len(LIST)].lower() != LIST:
        return data_url.parse(url, text)
    pieces = bytes(text).split(b",") if text is not None else rest.encode("ascii", "replace").split(b",")
    if len(pieces) > MAX_LISTED:
        raise MediaTooLarge("frames", len(pieces), MAX_LISTED, "video")
    return FrameList([data_url.parse(f"{head},", piece) for piece in pieces])


def footage_of(body: Body, media: Sequence[Medium]) -> Sequence[Footage]:
    """Animated pictures, as videos."""
    wholes = body.places({medium.part.part for medium in media}) if media else {}
    return [
        Footage(medium.part, medium.payload, medium.first.media_type, medium.place, wholes[medium.part.part], anew=True)
        for medium in media
    ]


def may_be_video(medium: Medium, profile: Profile) -> bool:
    """Whether a picture is an animation that its profile makes a video of, where one may stand."""
    first, kind = medium.first, medium.part.context.picture
    moves = first.animated and first.media_type in ANIMATIONS
    return profile.animation == "video" and moves and kind == "image_url" and medium.part.uuid is None


def kind_of(file: Payload | File) -> str:
    """The media type of a video. Raises CorruptMedia and UnsupportedVideo."""
    if not file.size:
        raise CorruptMedia("it is empty", "video")
    found = video.media_type_of(file)
    if found:
        return found
    picture = picture_type_of(file)
    raise UnsupportedVideo(f"an {picture} picture where a video stands" if picture else "no video that is known here")


def open_video(
    payload: Source,
    media_type: str,
    sampling: Sampling,
    loader: Loader,
    max_pixels: int,
    place: str = "",
    end_s: float | None = None,
) -> Clip:
    """A worker's job. A file that breaks off is looked at up to there."""
    with naming(place):
        data = payload.decode()
        try:
            clip = video.open_clip(data, media_type, _up_to(sampling, end_s), loader, max_pixels)
        except video.EndsEarly as early:
            end_s = early.end_s
            clip = video.open_clip(data, media_type, _up_to(sampling, end_s), loader, max_pixels)
        if clip.codec in video.LACKING and not pyav.is_installed():
            raise UnsupportedVideo(f"a video of codec {clip.codec!r}, which takes the extra av here")
        return msgspec.structs.replace(clip, ends_early=end_s is not None)


def _up_to(sampling: Sampling, end_s: float | None) -> Sampling:
    """With an end right behind the frame that is shown at `end_s`. Raises CorruptMedia where that is before the
    start."""
    if end_s is None:
        return sampling
    if end_s < sampling.start_s:
        raise CorruptMedia(f"nothing of it can be from {sampling.start_s:g} s on", "video")
    return msgspec.structs.replace(sampling, end_s=end_s + BEHIND_S)


def prepare_video(payload: Source, planned: ClipPlan, profile: Profile) -> Cut | float:
    """A worker's job: frames → files → base64. Where the video ends early, the time of its last frame instead."""
    files = read_frames(payload, planned, profile)
    if isinstance(files, float):
        return files
    return _as_it_came(payload, planned) if planned.kept else cut_of(files, planned)


def read_frames(payload: Source, planned: ClipPlan, profile: Profile) -> Sequence[bytes] | float:
    """A worker's job: the frames as JPEG files; or the time of the last one, where the video ends early."""
    with naming(planned.place):
        try:
            return frame_files(payload.decode(), planned, profile)
        except video.EndsEarly as early:
            return early.end_s


def _as_it_came(payload: Source, planned: ClipPlan) -> Cut:
    """Every frame of it has been read."""
    data, media_type = payload.decode(), planned.clip.media_type
    whole = [] if payload.canonical(media_type, data) else [b'"%s"' % data_url.build(media_type, data)]
    return Cut(whole, media_type, len(data))


def frame_files(data: bytes, planned: ClipPlan, profile: Profile) -> Sequence[bytes]:
    """The frames as JPEG files."""
    size, canvas = planned.layout
    clip, instants = planned.clip, planned.clip.sample.instants
    foreign = clip.codec in video.LACKING
    pictures = pyav.frames(data, instants, size) if foreign else video.frames(data, clip, instants, size)
    padded = (video.on_canvas(picture, canvas, profile.background_rgb) for picture in pictures)
    return [video.jpeg(picture, profile.video.quality, profile.video.chroma) for picture in padded]


def cut_of(files: Sequence[bytes], planned: ClipPlan) -> Cut:
    """In the form that they are sent in."""
    if planned.form == "video":
        packed = mp4.pack(files, planned.size, planned.fps)
        return Cut([b'"%s"' % data_url.build(mp4.MEDIA_TYPE, packed)], mp4.MEDIA_TYPE, len(packed))
    size_bytes = sum(map(len, files))
    if planned.form == "jpeg_frames":
        listed = b",".join(map(data_url.encode, files))
        return Cut([b'"data:video/jpeg;base64,%s"' % listed], "video/jpeg", size_bytes)
    return Cut([b'"%s"' % data_url.build("image/jpeg", file) for file in files], "image/jpeg", size_bytes)


def pixels_to_decode(clip: Clip) -> int:
    """As long as so many of a slow picture take."""
    return video.frames_to_read(clip) * clip.stored.pixels // EASE
