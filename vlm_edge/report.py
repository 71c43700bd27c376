"""Report: what one request cost. The headers, logs and metrics are made from it; it holds no pixels and no base64."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from vlm_edge.budget import Room
from vlm_edge.clips import ClipPlan
from vlm_edge.drift import Expected
from vlm_edge.errors import EdgeError
from vlm_edge.geometry import Size
from vlm_edge.pictures import PicturePlan
from vlm_edge.plan import Certainty, Model, Plan


class Sent(Protocol):
    """A file as it is sent."""

    @property
    def media_type(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...


class PictureReport(msgspec.Struct, frozen=True, kw_only=True):
    """One picture before → after. Sizes are upright, in pixels (of a PDF's page, in points); bytes are those of the
    file, not of its base64.

    page, pages: from 1, of a document or animation, whose bytes count with the first. size_after: as sent, with the
    margin that a thin picture gets; content_after: of the picture on it. fitted: smaller than its profile has it,
    because of the budget.
    """

    place: str
    action: str  # kept, resized, converted
    page: int = 1
    pages: int = 1
    media_type_before: str
    media_type_after: str
    size_before: Size
    size_after: Size
    content_after: Size
    bytes_before: int
    bytes_after: int
    tokens_before: int
    tokens_after: int
    fitted: bool = False

    def following(self, earlier: "PictureReport") -> "PictureReport":
        """Of a picture that came to us already prepared: from what it was at first."""
        return msgspec.structs.replace(
            self,
            action=earlier.action if self.action == "kept" else self.action,
            page=earlier.page,
            pages=earlier.pages,
            media_type_before=earlier.media_type_before,
            size_before=earlier.size_before,
            bytes_before=earlier.bytes_before,
            tokens_before=earlier.tokens_before,
            fitted=earlier.fitted or self.fitted,
            content_after=_scaled(earlier.content_after, self.size_before, self.content_after),
        )

    @property
    def scale(self) -> str:
        """Sent / original; of width x height where alignment makes them differ. Models answer in sent pixels."""
        pairs = zip(self.content_after, self.size_before, strict=True)
        width, height = (f"{after / before:.4f}" for after, before in pairs)
        return width if width == height else f"{width}x{height}"

    @classmethod
    def of(cls, plan: PicturePlan, sent: "Sent") -> "PictureReport":
        return cls(
            place=plan.place,
            action=plan.action,
            page=plan.probe.page + 1,
            pages=plan.probe.pages,
            media_type_before=plan.probe.media_type,
            media_type_after=sent.media_type,
            size_before=plan.probe.size,
            size_after=plan.size,
            content_after=plan.content,
            bytes_before=0 if plan.probe.page else plan.probe.file_bytes,
            bytes_after=sent.size_bytes,
            tokens_before=plan.tokens_before,
            tokens_after=plan.tokens,
            fitted=plan.fitted,
        )


class VideoReport(msgspec.Struct, frozen=True, kw_only=True):
    """One video before → after. form: video, jpeg_frames, frames. frames, seconds, fps: of what is looked at, and of
    what is sent. ends_early: the rest of it cannot be read."""

    place: str
    action: str  # kept, sampled
    form: str
    codec: str
    media_type_before: str
    media_type_after: str
    size_before: Size
    size_after: Size
    frames_before: int
    frames_after: int
    seconds: float
    fps_before: float
    fps_after: float
    bytes_before: int
    bytes_after: int
    tokens_before: int
    tokens_after: int
    fitted: bool = False
    ends_early: bool = False

    @classmethod
    def of(cls, plan: ClipPlan, sent: "Sent") -> "VideoReport":
        clip = plan.clip
        return cls(
            place=plan.place,
            action="kept" if plan.kept else "sampled",
            form=plan.form,
            codec=clip.codec,
            media_type_before=clip.media_type,
            media_type_after=sent.media_type,
            size_before=clip.size,
            size_after=plan.size,
            frames_before=clip.frames,
            frames_after=plan.frames,
            seconds=round(clip.seconds, 3),
            fps_before=round(clip.fps, 3),
            fps_after=round(plan.fps, 3),
            bytes_before=clip.file_bytes,
            bytes_after=sent.size_bytes,
            tokens_before=plan.tokens_before,
            tokens_after=plan.tokens,
            fitted=plan.fitted,
            ends_early=clip.ends_early,
        )


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One request. tokens: of its pictures and videos. certainty: whether they are exact, an estimate, or an upper
    bound, as of a model of unknown family.

    text_tokens: of its prompt beside the pictures, where it is one prompt; an upper bound unless text_exact.
    max_model_len: of the model's context.
    """

    profile: str
    model: str
    family: str
    certainty: Certainty
    tokens: int
    text_tokens: int | None = None
    text_exact: bool = False
    max_model_len: int | None = None
    bytes_before: int
    bytes_after: int
    pictures: Sequence[PictureReport]
    videos: Sequence[VideoReport] = ()
    passed: int = 0  # media that went on unseen: sounds, remote pictures
    dropped: int = 0  # old pictures, for which a note was left
    left_out: int = 0  # pages of documents longer than the profile takes
    decide_s: float = 0.0  # find, probe, plan
    prepare_s: float = 0.0  # pixels, waiting for a worker included

    @classmethod
    def of(
        cls,
        profile: str,
        model: Model,
        plan: Plan,
        room: Room | None,
        files: Sequence[Sent],
        cuts: Sequence[Sent] = (),
        **totals: Any,
    ) -> "Report":
        pictures = [PictureReport.of(one, sent) for one, sent in zip(plan.pictures, files, strict=True)]
        return cls(
            profile=profile,
            model=model.name,
            family=model.family,
            certainty=model.certainty,
            tokens=plan.tokens,
            text_tokens=room.text_at_most if room else None,
            text_exact=bool(room and room.exact),
            max_model_len=model.max_model_len,
            pictures=pictures,
            videos=[VideoReport.of(one, sent) for one, sent in zip(plan.clips, cuts, strict=True)],
            left_out=plan.left_out,
            **totals,
        )

    @property
    def exact(self) -> bool:
        return self.certainty == "exact"

    @property
    def expected(self) -> Expected | None:
        """What the model's server should count; None where that is not known."""
        if not self.exact or self.passed or self.text_tokens is None:
            return None
        sure = self.text_tokens if self.text_exact else 0
        return Expected(vision_tokens=self.tokens, text_tokens=sure, text_at_most=self.text_tokens)

    def following(self, earlier: "Report | None") -> "Report":
        """Of a request that another instance had prepared before: from what it was at first."""
        if earlier is None:
            return self
        return msgspec.structs.replace(
            self,
            pictures=_following(self.pictures, earlier.pictures, self.dropped),
            bytes_before=earlier.bytes_before,
            dropped=earlier.dropped + self.dropped,
            left_out=earlier.left_out + self.left_out,
        )

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Response headers: what was done, for those who look."""
        fitted = sum(one.fitted for one in self.pictures) + sum(one.fitted for one in self.videos)
        media = [f"images={len(self.pictures)}", *([f"videos={len(self.videos)}"] if self.videos else [])]
        others = Counter(fitted=fitted, passed=self.passed, dropped=self.dropped, left_out=self.left_out)
        counts = Counter(picture.action for picture in self.pictures) + others
        done = ", ".join(f"{action}={count}" for action, count in counts.items())
        texts = {
            b"x-vlm-edge-profile": self.profile,
            b"x-vlm-edge-media": "; ".join(filter(None, [*media, done])),
            b"x-vlm-edge-vision-tokens": f"{self.tokens}" if self.exact else f"{self.tokens}; {self.certainty}",
            b"x-vlm-edge-scale": ", ".join(picture.scale for picture in self.pictures),
            b"server-timing": f"decide;dur={self.decide_s * 1e3:.1f}, prepare;dur={self.prepare_s * 1e3:.1f}",
        }
        return [(name, text.encode("latin-1", "replace")) for name, text in texts.items() if text]


def _scaled(content: Size, before: Size, after: Size) -> Size:
    """What becomes of a picture on a canvas of the size `before` that is brought to `after`."""
    sides = zip(content, after, before, strict=True)
    return Size(*(max(1, round(side * new / old)) for side, new, old in sides))


def _following(
    pictures: Sequence[PictureReport], earlier: Sequence[PictureReport], dropped: int
) -> Sequence[PictureReport]:
    """By their places. Where pages have become parts of their own these have moved, but the order is the same, less
    the first ones, if old pictures were dropped."""
    if any(picture.pages > 1 for picture in earlier):
        kept = earlier[dropped:]
        pairs = zip(pictures, kept, strict=True) if len(pictures) == len(kept) else ()
        return [one.following(first) for one, first in pairs] or pictures
    places = {picture.place: picture for picture in earlier}
    return [one.following(places[one.place]) if one.place in places else one for one in pictures]


class Observer(Protocol):
    """Who wants to know what requests cost; metrics, logs, a test."""

    def prepared(self, report: Report) -> None: ...

    def refused(self, error: EdgeError) -> None: ...
