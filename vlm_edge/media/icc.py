"""ICC profiles (ICC.1:2022): whether one says sRGB."""

import struct

# Red, green and blue of sRGB, adapted to D50 as profiles have them; and how far those of honest profiles are off.
PRIMARIES = {b"rXYZ": (0.4360, 0.2225, 0.0139), b"gXYZ": (0.3851, 0.7169, 0.0971), b"bXYZ": (0.1431, 0.0606, 0.7141)}
TOLERANCE = 0.003

_NAMES = (b"sRGB", "sRGB".encode("utf-16-be"))
_MAX_TAGS = 100


def is_srgb(profile: bytes) -> bool:
    """By its name, which stands for its tone curve, and its primaries: "P3 with sRGB transfer" is a name as well."""
    if not any(name in profile for name in _NAMES):
        return False
    tags = _tags(profile)
    return all(_near(profile, tags.get(tag), colour) for tag, colour in PRIMARIES.items())


def _tags(profile: bytes) -> dict[bytes, int]:
    """Where the value of each tag stands."""
    count = min(int.from_bytes(profile[128:132]), _MAX_TAGS)
    table = profile[132 : 132 + 12 * count]
    return {tag: at for tag, at, _ in struct.iter_unpack(">4sII", table[: len(table) // 12 * 12])}


def _near(profile: bytes, at: int | None, colour: tuple[float, float, float]) -> bool:
    if at is None or len(profile) < at + 20:
        return False
    found = [number / 65_536 for number in struct.unpack_from(">3i", profile, at + 8)]
    return all(abs(one - other) <= TOLERANCE for one, other in zip(found, colour, strict=True))
