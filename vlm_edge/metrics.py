"""Metrics: Report → Prometheus. Nothing else in the package knows of it."""

from collections.abc import Iterator
from contextlib import suppress

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from vlm_edge.drift import Drifts
from vlm_edge.errors import EdgeError
from vlm_edge.report import Report
from vlm_edge.workers import Workers

CONTENT_TYPE = CONTENT_TYPE_LATEST

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
TOKENS = (64, 256, 1_024, 4_096, 16_384, 65_536)


class Metrics:
    """An Observer that counts. One registry of its own, unless the process shares one."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = self._counter("requests", "Requests with media, let through.", "profile")
        self.refusals = self._counter("refusals", "Requests refused, by error code.", "code")
        self.pictures = self._counter("pictures", "Pictures, by what was done to them.", "action")
        self.videos = self._counter("videos", "Videos, by the form they are sent in.", "form")
        self.frames = self._counter("video_frames", "Frames of videos.", "side")
        self.bytes = self._counter("picture_bytes", "Bytes of picture files.", "side")
        self.tokens = self._counter("vision_tokens", "Vision tokens of pictures and videos.", "side")
        self.request_tokens = self._histogram("request_vision_tokens", "Vision tokens of a request as sent.", TOKENS)
        self.decide = self._histogram("decide_seconds", "Time to find, probe and plan a request.", SECONDS)
        self.prepare = self._histogram("prepare_seconds", "Time to prepare a request's pictures.", SECONDS)

    def prepared(self, report: Report) -> None:
        self.requests.labels(report.profile).inc()
        self.request_tokens.observe(report.tokens)
        self.decide.observe(report.decide_s)
        self.prepare.observe(report.prepare_s)
        for picture in report.pictures:
            self.pictures.labels(picture.action).inc()
            self.bytes.labels("before").inc(picture.bytes_before)
            self.bytes.labels("after").inc(picture.bytes_after)
            self.tokens.labels("before").inc(picture.tokens_before)
            self.tokens.labels("after").inc(picture.tokens_after)
        for video in report.videos:
            self.videos.labels("kept" if video.action == "kept" else video.form).inc()
            self.frames.labels("before").inc(video.frames_before)
            self.frames.labels("after").inc(video.frames_after)
            self.tokens.labels("before").inc(video.tokens_before)
            self.tokens.labels("after").inc(video.tokens_after)

    def refused(self, error: EdgeError) -> None:
        self.refusals.labels(error.code).inc()

    def watch(self, workers: Workers) -> None:
        """Show how many pictures are under way, at each scrape."""
        gauge = Gauge("vlm_edge_pictures_under_way", "Pictures worked on or waiting.", registry=self.registry)
        gauge.set_function(lambda: workers.pending)

    def watch_drift(self, drifts: Drifts) -> None:
        """Show how answers' usage differs from what was expected, at each scrape."""
        self.registry.register(_DriftCollector(drifts))

    def text(self) -> bytes:
        """The exposition, of content type CONTENT_TYPE."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help_text: str, label: str) -> Counter:
        return Counter(f"vlm_edge_{name}", help_text, (label,), registry=self.registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"vlm_edge_{name}", help_text, buckets=buckets, registry=self.registry)


def share_drift(drifts: Drifts) -> None:
    """The same on the registry of the process, which a server around us exposes; the first of several counts."""
    with suppress(ValueError):  # there is one
        REGISTRY.register(_DriftCollector(drifts))


class _DriftCollector(Collector):
    def __init__(self, drifts: Drifts) -> None:
        self.drifts = drifts

    def collect(self) -> Iterator[Metric]:
        compared = CounterMetricFamily(
            "vlm_edge_usage_compared", "Answers whose usage was compared with what was expected.", labels=["model"]
        )
        for model, number in self.drifts.compared().items():
            compared.add_metric([model], number)
        labels = ["model", "where", "direction"]
        answers = CounterMetricFamily(
            "vlm_edge_drifted", "Answers whose usage was not the expected one.", labels=labels
        )
        tokens = CounterMetricFamily("vlm_edge_drift_tokens", "Tokens by which usage differed.", labels=labels)
        for total in self.drifts.totals():
            answers.add_metric([total.model, total.where, total.direction], total.answers)
            tokens.add_metric([total.model, total.where, total.direction], total.tokens)
        yield from (compared, answers, tokens)
