"""Estimate: what a request would cost, part by part, and whether it would pass. The table behind /edge/estimate and
`vlm-edge tokens`."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from vlm_edge.budget import Room
from vlm_edge.clips import ClipPlan
from vlm_edge.geometry import Size
from vlm_edge.pictures import PicturePlan
from vlm_edge.plan import Certainty, Model, Plan


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One picture, or one page: before → as it would be sent. Sizes are upright, in pixels (of a PDF's page before, in
    points). fitted: smaller than its profile has it, because of the budget."""

    param: str
    page: int
    pages: int
    media_type: str
    action: str
    size_before: Size
    size: Size
    tokens_before: int
    tokens: int
    fitted: bool

    @classmethod
    def of(cls, picture: PicturePlan) -> "Cost":
        return cls(
            param=picture.place,
            page=picture.probe.page + 1,
            pages=picture.probe.pages,
            media_type=picture.probe.media_type,
            action=picture.action,
            size_before=picture.probe.size,
            size=picture.size,
            tokens_before=picture.tokens_before,
            tokens=picture.tokens,
            fitted=picture.fitted,
        )


class VideoCost(msgspec.Struct, frozen=True, kw_only=True):
    """One video: before → as it would be sent. frames, fps: of what is sent, in this form."""

    param: str
    form: str
    frames_before: int
    seconds: float
    frames: int
    fps: float
    size_before: Size
    size: Size
    tokens_before: int
    tokens: int
    fitted: bool

    @classmethod
    def of(cls, video: ClipPlan) -> "VideoCost":
        return cls(
            param=video.place,
            form=video.form,
            frames_before=video.clip.frames,
            seconds=round(video.clip.seconds, 3),
            frames=video.frames,
            fps=round(video.fps, 3),
            size_before=video.clip.size,
            size=video.size,
            tokens_before=video.tokens_before,
            tokens=video.tokens,
            fitted=video.fitted,
        )


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A whole request. certainty: of the vision `tokens`. text_tokens: of its prompt beside the pictures, where it has
    one prompt; an upper bound unless text_exact. allowed: vision tokens, by the limits and by what is left of the
    model's context. error: the body of the refusal."""

    model: str
    family: str
    exact: bool
    certainty: Certainty
    profile: str
    tokens: int
    text_tokens: int | None
    text_exact: bool
    reserved_tokens: int
    max_model_len: int | None
    allowed: int
    parts: Sequence[Cost]
    videos: Sequence[VideoCost]
    left_out: int
    verdict: Literal["accept", "refuse"]
    error: dict[str, Any] | None

    @classmethod
    def of(
        cls, profile: str, model: Model, plan: Plan, room: Room | None, allowed: int, error: dict[str, Any] | None
    ) -> "Estimate":
        return cls(
            model=model.name,
            family=model.family,
            exact=model.exact,
            certainty=model.certainty,
            profile=profile,
            tokens=plan.tokens,
            text_tokens=room.text_at_most if room else None,
            text_exact=bool(room and room.exact),
            reserved_tokens=room.reserved if room else 0,
            max_model_len=model.max_model_len,
            allowed=room.for_pictures(allowed) if room else allowed,
            parts=[Cost.of(picture) for picture in plan.pictures],
            videos=[VideoCost.of(clip) for clip in plan.clips],
            left_out=plan.left_out,
            verdict="refuse" if error else "accept",
            error=error,
        )
