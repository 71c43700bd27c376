from typing import Any

import msgspec
import pytest

from vlm_edge.media.profile import Profile


def test_a_profile_is_complete_without_a_word() -> None:
    profile = msgspec.convert({}, Profile)
    assert profile == Profile()
    assert profile.max_images is None


@pytest.mark.parametrize(
    "fields",
    [
        {"max_side": 1, "max_pixels": 1, "quality": 1, "max_images": 0},
        {"max_side": 65_500, "quality": 100, "format": "webp", "chroma": "4:4:4"},
        {"format": "auto"},
        {"format": "jpeg"},
        {"format": "png"},
    ],
)
def test_what_makes_sense_is_taken(fields: dict[str, Any]) -> None:
    profile = msgspec.convert(fields, Profile)
    assert {name: getattr(profile, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_side", 0),
        ("max_side", 65_501),
        ("max_pixels", 0),
        ("max_pixels", -1),
        ("quality", 0),
        ("quality", 900),
        ("max_images", -1),
        ("format", "gif"),
        ("chroma", "4:2:2"),
        ("max_side", "1024"),
        ("max_side", 10.5),
        ("max_size", 1_024),
    ],
)
def test_what_makes_none_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: value}, Profile)


def test_a_profile_in_python_is_checked_as_well() -> None:
    with pytest.raises(ValueError, match="quality = 900"):
        Profile(quality=900)


def test_a_profile_does_not_change() -> None:
    profile: Any = Profile()
    with pytest.raises(AttributeError):
        profile.quality = 50
