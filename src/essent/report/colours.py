"""Colours of figures: the levels of heat maps and the series of charts, in light and dark."""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = 21  # of the colours of a heat map
LIGHT = ("#F1F5FA", "#7FB0DC", "#0C3F7C")  # from low to high; text on them is INK or PAPER, whichever is read better
DARK = ("#1B2430", "#2F6CA8", "#B5DAFF")
INK, PAPER = "#0A0D11", "#FFFFFF"

SERIES = {  # one a model; the third is also that of baselines
    "light": ("#3B76B4", "#C8553D", "#78838F", "#2C8A6B", "#8A5CB0", "#B5831A", "#C04C86", "#3A8EA5"),
    "dark": ("#5B9BDC", "#E8806A", "#8D99A6", "#4FB894", "#B08AD6", "#D9A93F", "#E077AC", "#5FB4CB"),
}


def level_of(shade: float) -> int:
    """The level of a shade in [0, 1]."""
    return round(shade * (LEVELS - 1))


def palette(stops: Sequence[str]) -> list[tuple[str, str]]:
    """The colours of all levels, each with that of the text on it."""
    found = []
    for level in range(LEVELS):
        at = level / (LEVELS - 1) * (len(stops) - 1)
        first = min(int(at), len(stops) - 2)
        mixed = [a + (b - a) * (at - first) for a, b in zip(_rgb(stops[first]), _rgb(stops[first + 1]), strict=True)]
        colour = "#" + "".join(f"{round(part):02X}" for part in mixed)
        found.append((colour, max((INK, PAPER), key=lambda text: contrast(colour, text))))
    return found


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [part / 255 for part in _rgb(colour)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
