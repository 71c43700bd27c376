"""
Clips: the plan of a video: which form it is sent in, how large its frames are, and what it costs.

Pure, on what is known of the file: which frames are taken has been told by their times.
"""

from typing import Literal, NamedTuple

import msgspec

from vlm_edge.errors import UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.layout import Layout, layout
from vlm_edge.media.mp4 import rate
from vlm_edge.media.profile import Profile
from vlm_edge.media.sampling import Loader, Sample
from vlm_edge.media.video import LACKING, Clip
from vlm_edge.tokens.clips import ClipRule, takes_videos
from vlm_edge.tokens.rule import Rule

Form = Literal["video", "jpeg_frames", "frames"]

# How vLLM chooses frames, by the class of a model's video processor (vllm/multimodal/video.py, 0.32): its own loader
# for some families, and for all others 32 at most.
QWEN = Loader(max_frames=768, fps=2.0, min_frames=4, step=2)
GLM_4_1V = Loader(max_frames=600, fps=2.0, step=2)
GLM_4_6V = Loader(max_frames=600, fps=1.0, step=2)
LOADERS = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"), QWEN),
    "glm4_1v": GLM_4_1V,
    "glm4_6v": GLM_4_6V,
}
DEFAULT = Loader()
# A list of JPEGs is taken as it is, up to so many, at one frame a second (`--media-io-kwargs` tells otherwise).
LISTED = 32
LISTED_FPS = 1.0


class ClipPlan(msgspec.Struct, frozen=True):
    """What to do with one video. fps: as the server behind will read it. step: its frames are a multiple of it. least:
    to which their number may be brought down. kept: it goes on as it came."""

    place: str
    clip: Clip
    form: Form
    layout: Layout
    fps: float
    tokens: int
    tokens_before: int
    step: int = 1
    least: int = 1
    kept: bool = False
    prompt: int | None = 0
    fitted: bool = False

    @property
    def frames(self) -> int:
        return len(self.clip.sample.instants)

    def counting(self, rule: Rule) -> ClipRule:
        """How a model of this rule counts frames of another size."""
        return clip_rule(rule, self.frames, self.fps, self.form)

    @property
    def size(self) -> Size:
        """Of a frame as it is sent."""
        return self.layout.canvas


def form_of(profile: Profile, rule: Rule) -> Form:
    """Raises UnsupportedMedia for a form that the model does not count."""
    form = profile.video.form
    if form == "auto":
        return "video" if takes_videos(rule) else "frames"
    if form != "frames" and not takes_videos(rule):
        raise UnsupportedMedia("a video, which this model does not take; its profile may send frames")
    return form


def loader_of(form: Form, family: str, max_pictures: int) -> Loader:
    """What the server will do with the frames; as pictures it takes them all, as many as may be sent."""
    if form == "frames":
        return Loader(max_frames=max_pictures)
    own = LOADERS.get(family, DEFAULT)
    return own if form == "video" else Loader(max_frames=min(LISTED, own.max_frames), step=own.step)


class Film(NamedTuple):
    """A video to plan: where it stands, what is known of it, and the form that it is sent in."""

    place: str
    clip: Clip
    form: Form
    prompt: int | None = 0


def plan_clip(film: Film, profile: Profile, rule: Rule, loader: Loader) -> ClipPlan:
    """Raises the refusals of sizes and budgets."""
    place, clip, form, prompt = film
    fps = _fps(clip.sample, form, loader)
    counting = clip_rule(rule, len(clip.sample.instants), fps, form)
    found = layout(clip.size, of_frames(profile), counting)
    kept = form == "video" and profile.reencode == "when_needed" and is_within(clip, found, loader)
    if kept:
        fps = clip.declared_fps
        counting = clip_rule(rule, len(clip.sample.instants), fps, form)
    return ClipPlan(
        place=place,
        clip=clip,
        form=form,
        layout=found,
        fps=fps,
        tokens=counting.image(found.canvas),
        tokens_before=counting.image(clip.size),
        step=loader.step,
        least=profile.video.min_frames,
        kept=kept,
        prompt=prompt,
    )


def is_within(clip: Clip, found: Layout, loader: Loader) -> bool:
    """Whether a video is already what would be made of it: each of its frames is taken, at its size, and its server
    keeps them all."""
    every = [instant.frame for instant in clip.sample.instants] == list(range(clip.frames))
    slow = loader.fps is None or clip.declared_fps <= loader.fps or clip.frames <= loader.min_frames
    video = clip.media_type.startswith("video/") and clip.codec not in LACKING
    return video and clip.plain and every and slow and found.size == found.canvas == clip.size


def can_be_thinned(planned: ClipPlan) -> bool:
    """Whether its profile lets it have fewer frames."""
    return _fewer(planned) < planned.frames


def _fewer(planned: ClipPlan) -> int:
    """Half of the frames, in whole steps, and no fewer than the profile wants."""
    half = max(planned.least, planned.frames // 2)
    return -(-half // planned.step) * planned.step


def thinned(planned: ClipPlan, profile: Profile, rule: Rule) -> ClipPlan:
    """With half of the frames."""
    count, instants = _fewer(planned), planned.clip.sample.instants
    taken = [instants[number * planned.frames // count] for number in range(count)]
    share = count / planned.frames
    clip = msgspec.structs.replace(planned.clip, sample=Sample(taken, planned.clip.sample.fps * share))
    fps = planned.fps if planned.form == "jpeg_frames" else rate(planned.fps * share)
    made = msgspec.structs.replace(planned, clip=clip, fps=fps, kept=False, fitted=True)
    found = layout(clip.size, of_frames(profile), made.counting(rule))
    return msgspec.structs.replace(made, layout=found, tokens=made.counting(rule).image(found.canvas))


def _fps(sample: Sample, form: Form, loader: Loader) -> float:
    """At which the frames are sent: as they were taken; slower only where the server would leave some out."""
    if form == "jpeg_frames":
        return LISTED_FPS
    few = len(sample.instants) <= loader.min_frames
    return rate(sample.fps if loader.fps is None or few else min(sample.fps, loader.fps))


def clip_rule(rule: Rule, frames: int, fps: float, form: Form) -> ClipRule:
    return ClipRule(base=rule, frames=frames, fps=fps, apart=form == "frames")


def of_frames(profile: Profile) -> Profile:
    """The profile that the frames of a video have."""
    video = profile.video
    return msgspec.structs.replace(
        profile,
        max_side=video.max_side,
        max_pixels=video.max_pixels,
        floor_pixels=video.floor_pixels,
        max_tokens=None,
        min_side=0,
        engine="vips",
    )
