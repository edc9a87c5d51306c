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

PAGES = {
    "light": "--page: #ffffff; --panel: #f7f8fa; --ink: #1a1f26; --faint: #5a6470; --rule: #dfe3e8; --link: #0b57a4; "
    "--best: #0b57a4;",
    "dark": "--page: #12161b; --panel: #1a2028; --ink: #e7ebf0; --faint: #a0abb8; --rule: #303945; --link: #8fc1f5; "
    "--best: #8fc1f5;",
}


def page_colours() -> str:
    """The colours of a page as CSS: its variables in light and dark, a class for every level and series."""
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
    """The level of a shade in [0, 1]."""
    return round(shade * (LEVELS - 1))


def palette(stops: Sequence[str]) -> list[tuple[str, str]]:
    """The colours of all levels, each with that of the text on it."""
    shades = []
    for level in range(LEVELS):
        at = level / (LEVELS - 1) * (len(stops) - 1)
        first = min(int(at), len(stops) - 2)
        mixed = [a + (b - a) * (at - first) for a, b in zip(_rgb(stops[first]), _rgb(stops[first + 1]), strict=True)]
        colour = "#" + "".join(f"{round(part):02X}" for part in mixed)
        shades.append((colour, max((INK, PAPER), key=lambda text: contrast(colour, text))))
    return shades


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    light, dark = sorted(map(_luminance, (first, second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [part / 255 for part in _rgb(colour)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
