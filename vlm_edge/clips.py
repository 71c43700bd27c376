"""
Clips: the plan of a video: which form it is sent in, how large its frames are, and what it costs.

Pure, on what is known of the file: which frames are taken has been told by their times.
"""

from typing import Literal

import msgspec

from vlm_edge.errors import UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.layout import Layout, layout
from vlm_edge.media.mp4 import rate
from vlm_edge.media.profile import Profile
from vlm_edge.media.sampling import Loader
from vlm_edge.media.video import Clip
from vlm_edge.tokens.clips import ClipRule, takes_videos
from vlm_edge.tokens.rule import Rule

Form = Literal["video", "jpeg_frames", "frames"]

# How vLLM chooses frames, by the class of a model's video processor (vllm/multimodal/video.py, 0.32): its own loader
# for some families, and for all others 32 at most.
QWEN = Loader(max_frames=768, fps=2.0, min_frames=4, step=2)
GLM = Loader(max_frames=600, fps=1.0, min_frames=2, step=2)
LOADERS = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"), QWEN),
    **dict.fromkeys(("glm4_1v", "glm4_6v"), GLM),
}
DEFAULT = Loader()
# A list of JPEGs is taken as it is, up to so many, at one frame a second (`--media-io-kwargs` tells otherwise).
LISTED = 32
LISTED_FPS = 1.0
# Pictures are all taken, one by one.
APART = Loader(max_frames=1 << 20)


class ClipPlan(msgspec.Struct, frozen=True):
    """What to do with one video. size, canvas: of each frame. fps: as the server behind will read it."""

    place: str
    clip: Clip
    form: Form
    layout: Layout
    fps: float
    tokens: int
    tokens_before: int
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


def loader_of(form: Form, family: str) -> Loader:
    """What the server will do with the frames."""
    if form == "frames":
        return APART
    own = LOADERS.get(family, DEFAULT)
    return own if form == "video" else Loader(max_frames=min(LISTED, own.max_frames), step=own.step)


def plan_clip(place: str, clip: Clip, form: Form, profile: Profile, rule: Rule, prompt: int | None = 0) -> ClipPlan:
    """Raises the refusals of sizes and budgets."""
    fps = LISTED_FPS if form == "jpeg_frames" else rate(clip.sample.fps)
    counting = clip_rule(rule, len(clip.sample.instants), fps, form)
    found = layout(clip.size, of_frames(profile), counting)
    tokens = counting.image(found.canvas)
    return ClipPlan(place, clip, form, found, fps, tokens, counting.image(clip.size), prompt)


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
