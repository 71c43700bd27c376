"""Report: what one request cost. The headers, logs and metrics are made from it; it holds no pixels and no base64."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from vlm_edge.errors import EdgeError
from vlm_edge.geometry import Size
from vlm_edge.plan import Model, PicturePlan, Plan


class PictureReport(msgspec.Struct, frozen=True, kw_only=True):
    """One picture before → after. Sizes are upright, in pixels; bytes are those of the file, not of its base64."""

    place: str
    action: str  # kept, resized, converted
    media_type_before: str
    media_type_after: str
    size_before: Size
    size_after: Size
    bytes_before: int
    bytes_after: int
    tokens_before: int
    tokens_after: int

    def following(self, earlier: "PictureReport") -> "PictureReport":
        """Of a picture that came to us already prepared: from what it was at first."""
        return msgspec.structs.replace(
            self,
            action=earlier.action if self.action == "kept" else self.action,
            media_type_before=earlier.media_type_before,
            size_before=earlier.size_before,
            bytes_before=earlier.bytes_before,
            tokens_before=earlier.tokens_before,
        )

    @property
    def scale(self) -> str:
        """Sent / original; of width x height where alignment makes them differ. Models answer in sent pixels."""
        pairs = zip(self.size_after, self.size_before, strict=True)
        width, height = (f"{after / before:.4f}" for after, before in pairs)
        return width if width == height else f"{width}x{height}"

    @classmethod
    def of(cls, plan: PicturePlan, sent_bytes: int) -> "PictureReport":
        return cls(
            place=plan.place,
            action=plan.action,
            media_type_before=plan.probe.media_type,
            media_type_after=plan.target.media_type if plan.target else plan.probe.media_type,
            size_before=plan.probe.size,
            size_after=plan.size,
            bytes_before=plan.probe.file_bytes,
            bytes_after=sent_bytes,
            tokens_before=plan.tokens_before,
            tokens_after=plan.tokens,
        )


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `exact` is False where the model's family was assumed and tokens are an estimate."""

    profile: str
    model: str
    family: str
    exact: bool
    tokens: int
    bytes_before: int
    bytes_after: int
    pictures: Sequence[PictureReport]
    passed: int = 0  # media that went on unseen: videos, sounds, remote pictures
    dropped: int = 0  # old pictures, for which a note was left
    decide_s: float = 0.0  # find, probe, plan
    prepare_s: float = 0.0  # pixels, waiting for a worker included

    @classmethod
    def of(cls, profile: str, model: Model, plan: Plan, sent_bytes: Sequence[int], **totals: Any) -> "Report":
        pictures = [PictureReport.of(one, sent) for one, sent in zip(plan.pictures, sent_bytes, strict=True)]
        return cls(
            profile=profile,
            model=model.name,
            family=model.family,
            exact=model.exact,
            tokens=plan.tokens,
            pictures=pictures,
            **totals,
        )

    def following(self, earlier: "Report | None") -> "Report":
        """Of a request that another instance had prepared before: from what it was at first."""
        if earlier is None:
            return self
        first = {picture.place: picture for picture in earlier.pictures}
        pictures = [one.following(first[one.place]) if one.place in first else one for one in self.pictures]
        dropped, bytes_before = earlier.dropped + self.dropped, earlier.bytes_before
        return msgspec.structs.replace(self, pictures=pictures, bytes_before=bytes_before, dropped=dropped)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Response headers: what was done, for those who look."""
        others = Counter(passed=self.passed, dropped=self.dropped)
        counts = Counter(picture.action for picture in self.pictures) + others
        done = ", ".join(f"{action}={count}" for action, count in counts.items())
        texts = {
            b"x-vlm-edge-profile": self.profile,
            b"x-vlm-edge-media": f"images={len(self.pictures)}; {done}",
            b"x-vlm-edge-vision-tokens": f"{self.tokens}" if self.exact else f"{self.tokens}; estimate",
            b"x-vlm-edge-scale": ", ".join(picture.scale for picture in self.pictures),
            b"server-timing": f"decide;dur={self.decide_s * 1e3:.1f}, prepare;dur={self.prepare_s * 1e3:.1f}",
        }
        return [(name, text.encode("latin-1", "replace")) for name, text in texts.items() if text]


class Observer(Protocol):
    """Who wants to know what requests cost; metrics, logs, a test."""

    def prepared(self, report: Report) -> None: ...

    def refused(self, error: EdgeError) -> None: ...
