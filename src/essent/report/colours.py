"""Colours of figures: the levels of heat maps and the series of charts, in light and dark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEVELS = 21  # colours of a heat map
LIGHT = ("#F1F5FA", "#7FB0DC", "#0C3F7C")  # from low to high; the text on them is INK or PAPER, by contrast
DARK = ("#1B2430", "#2F6CA8", "#B5DAFF")
INK, PAPER = "#0A0D11", "#FFFFFF"
BRIGHT = 0.183  # luminance above which INK has a higher contrast than PAPER

SERIES = {  # one per model; the third is also the colour of baselines
    "light": ("#3B76B4", "#C8553D", "#78838F", "#2C8A6B", "#8A5CB0", "#B5831A", "#C04C86", "#3A8EA5"),
    "dark": ("#5B9BDC", "#E8806A", "#8D99A6", "#4FB894", "#B08AD6", "#D9A93F", "#E077AC", "#5FB4CB"),
}

PAGES = {
    "light": "--page: #ffffff; --panel: #f7f8fa; --ink: #1a1f26; --faint: #5a6470; --rule: #dfe3e8; --link: #0b57a4; "
    "--best: #0b57a4;",
    "dark": "--page: #12161b; --panel: #1a2028; --ink: #e7ebf0; --faint: #a0abb8; --rule: #303945; --link: #8fc1f5; "
    "--best: #8fc1f5;",
}


def page_colours() -> str:
    """Return the colours of a page as CSS: variables in light and dark, and a class per level and series."""
    light, dark = (_variables(mode, stops) for mode, stops in (("light", LIGHT), ("dark", DARK)))
    levels = (f".h{n} {{ background: var(--h{n}); color: var(--t{n}); }}" for n in range(LEVELS))
    series = (f".s{n} {{ --s: var(--s{n}); }}" for n in range(len(SERIES["light"])))
    system = '@media (prefers-color-scheme: dark) {\n:root:not([data-theme="light"]) {\n' + dark + "}\n}"
    rules = [f":root {{\n{light}}}", system, f':root[data-theme="dark"] {{\n{dark}}}', *levels, *series]
    return "\n".join(rules)


def _variables(mode: str, stops: Sequence[str]) -> str:
    series = " ".join(f"--s{n}: {colour};" for n, colour in enumerate(SERIES[mode]))
    levels = " ".join(f"--h{n}: {colour}; --t{n}: {text};" for n, (colour, text) in enumerate(palette(stops)))
    return f"  color-scheme: {mode};\n  {PAGES[mode]}\n  {series}\n  {levels}\n"


def level_of(shade: float) -> int:
    """Return the level of a shade in [0, 1]."""
    return round(shade * (LEVELS - 1))


def palette(stops: Sequence[str]) -> list[tuple[str, str]]:
    """Return the colours of all levels, each with the colour of its text by luminance (WCAG 2.2)."""
    channels = np.array([[int(stop[start : start + 2], 16) for start in (1, 3, 5)] for stop in stops]).T  # (3,stops)
    positions = np.linspace(0, len(stops) - 1, LEVELS)
    colours = np.stack([np.interp(positions, range(len(stops)), channel) for channel in channels], axis=1)
    parts = colours.round() / 255  # (levels,3)
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    luminances = linear @ (0.2126, 0.7152, 0.0722)
    return [
        ("#{:02X}{:02X}{:02X}".format(*colour), INK if luminance > BRIGHT else PAPER)
        for colour, luminance in zip(colours.round().astype(int), luminances, strict=True)
    ]
