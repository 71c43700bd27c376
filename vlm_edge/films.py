"""Films: the videos of a request, and single ones, from what came to what is sent. Which work is done, and on what."""

from collections.abc import Sequence
from functools import partial

import msgspec

from vlm_edge.clips import ClipPlan, Film, form_of, loader_of
from vlm_edge.errors import CorruptMedia, MediaTooLarge, naming
from vlm_edge.footage import Footage, Source, cut_of, kind_of, open_video, pixels_to_decode, read_frames
from vlm_edge.geometry import Size
from vlm_edge.media import mp4
from vlm_edge.media.data_url import File
from vlm_edge.media.profile import Profile
from vlm_edge.media.video import Clip
from vlm_edge.pictures import Limits
from vlm_edge.plan import Model, Plan, check_budget, fitted, plan
from vlm_edge.report import VideoReport
from vlm_edge.settings import Settings
from vlm_edge.workers import Job, Workers

# How often a video may turn out shorter than it seemed; and what may be decoded of one to find motion, in pixels that
# count as those of a slow picture.
READINGS = 3
LOOKED_AT_PIXELS = 400_000_000


class Video(msgspec.Struct, frozen=True):
    """One prepared video. data: a short video of the frames. frames: JPEG files, all of one size. times_s: when each is
    on the screen in the original. fps: of the short video. tokens: in the form of its profile."""

    data: bytes
    media_type: str
    frames: Sequence[bytes]
    times_s: Sequence[float]
    fps: float
    size: Size
    tokens: int
    report: VideoReport


class Films:
    def __init__(self, settings: Settings, workers: Workers) -> None:
        self.settings, self.workers = settings, workers

    @property
    def limits(self) -> Limits:
        return self.settings.limits

    def openings(self, films: Sequence[Footage], profile: Profile, model: Model, pictures: int) -> list[Job[Clip]]:
        """The work to choose their frames, beside so many pictures. Raises the refusals of forms that cannot be."""
        each = max(1, (self.limits.max_images - pictures) // max(1, len(films)))
        return [self.opening(film, profile, model, each) for film in films]

    def opening(
        self, film: Footage, profile: Profile, model: Model, max_pictures: int, end_s: float | None = None
    ) -> Job[Clip]:
        """max_pictures: frames, where they are sent as such. end_s: of what can be read of it, where that is known."""
        with naming(film.part.place):
            film.check_room(form_of(profile, model.rule), named=self.settings.uuid != "strip")
        return self._opening(film.payload, film.media_type, profile, model, film.part.place, max_pictures, end_s)

    def to_plan(self, films: Sequence[Footage], clips: Sequence[Clip], profile: Profile, model: Model) -> list[Film]:
        pairs = zip(films, clips, strict=True)
        return [
            Film(film.part.place, clip, form_of(profile, model.rule), film.part.context.prompt) for film, clip in pairs
        ]

    def make(self, data: bytes, profile: Profile, model: Model) -> Video:
        """One video file, as in a request."""
        file, end_s = File(bytes(data)), None
        for _ in range(READINGS):
            planned = self.plan(data, profile, model, end_s)
            work = partial(read_frames, file, planned, profile)
            found = self.workers.run(Job(work, True, pixels_to_decode(planned.clip), video=True))
            if not isinstance(found, float):
                return _video(found, planned)
            end_s = found
        raise endless()

    def plan(self, data: bytes, profile: Profile, model: Model, end_s: float | None = None) -> ClipPlan:
        """What is made of a video in a prompt of its own."""
        if len(data) > self.limits.max_video_bytes:
            raise MediaTooLarge("bytes", len(data), self.limits.max_video_bytes, "video")
        file = File(bytes(data))
        work = self._opening(file, kind_of(file), profile, model, "", self.limits.max_images, end_s)
        clip = self.workers.run(work)
        film = Film("", clip, form_of(profile, model.rule))
        made: Plan = plan((), profile, model, self.limits, films=[film])
        if self.settings.budget.on_exceed == "fit":
            made = fitted(made, profile, model.rule, self.limits)
        check_budget(made, self.limits, certainty=model.certainty)
        return made.clips[0]

    def _opening(
        self,
        payload: Source,
        media_type: str,
        profile: Profile,
        model: Model,
        place: str,
        max_pictures: int,
        end_s: float | None,
    ) -> Job[Clip]:
        loader = loader_of(form_of(profile, model.rule), model.family, max_pictures)
        pixels = LOOKED_AT_PIXELS if profile.video.strategy == "motion" else 0
        most = self.limits.max_video_pixels
        work = partial(open_video, payload, media_type, profile.video, loader, most, place, end_s)
        return Job(work, True, pixels, place, video=True)


def _video(files: Sequence[bytes], planned: ClipPlan) -> Video:
    instants = planned.clip.sample.instants
    cut = cut_of(files, planned)
    return Video(
        data=mp4.pack(files, planned.size, planned.fps),
        media_type=mp4.MEDIA_TYPE,
        frames=files,
        times_s=[instant.shown_s for instant in instants],
        fps=planned.fps,
        size=planned.size,
        tokens=planned.tokens,
        report=VideoReport.of(planned, cut),
    )


def endless() -> CorruptMedia:
    return CorruptMedia("it ends in many places", "video")
