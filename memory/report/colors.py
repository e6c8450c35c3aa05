"""The colours of pictures and pages, and the units of their axes.

Okabe and Ito's palette, which the colour-blind can tell apart ("Color Universal Design", 2008). Areas and
lines also differ in grey, by pattern and dash. `ramp0` to `ramp11`, ever lighter, are matplotlib's plasma
without its lightest part, which is hard to see on paper.
"""

from __future__ import annotations

BLUE, SKY, GREEN, ORANGE = "#0072B2", "#56B4E9", "#009E73", "#E69F00"
VERMILLION, YELLOW, PURPLE = "#D55E00", "#F0E442", "#CC79A7"
GREY, LIGHT_GREY = "#777777", "#BBBBBB"

TINTS = 8

ON_PAGE = {
    "paper": ("#ffffff", "#14171a"),
    "raised": ("#f6f7f8", "#1d2125"),
    "ink": ("#16191d", "#e9ecef"),
    "soft": ("#5b636c", "#a2abb4"),
    "faint": ("#d9dde1", "#3a4148"),
    "hair": ("#eceef0", "#262b30"),
    "blue": (BLUE, "#3f9bdc"),
    "purple": (PURPLE, "#d58fb8"),
    "green": (GREEN, "#25b48a"),
    "orange": (ORANGE, "#e8ab2b"),
    "red": (VERMILLION, "#ff7f4d"),
    "sky": (SKY, "#7cc4ef"),
    "yellow": (YELLOW, "#e5da58"),
    "grey": ("#9aa3ab", "#7f8992"),
    "cache": ("#9aa3ab", "#6c757d"),
    "tint0": ("#cfe6f5", "#2b5874"),
    "tint1": ("#f7f0b3", "#676329"),
    "tint2": ("#c9e9dd", "#276653"),
    "tint3": ("#f5dcea", "#6b4260"),
    "tint4": ("#fbe3bd", "#6d5827"),
    "tint5": ("#e2e6ea", "#4a535b"),
    "tint6": ("#d9d5f2", "#4b477c"),
    "tint7": ("#f6d3c9", "#75432d"),
    "ramp0": ("#0d0887", "#7f7bf5"),
    "ramp1": ("#360498", "#936fed"),
    "ramp2": ("#5a02a3", "#a566e2"),
    "ramp3": ("#7a05a6", "#b75ed3"),
    "ramp4": ("#98159f", "#c959c1"),
    "ramp5": ("#b12b8f", "#d75cab"),
    "ramp6": ("#c7437c", "#e36394"),
    "ramp7": ("#da5a69", "#ed6e7e"),
    "ramp8": ("#e97357", "#f38068"),
    "ramp9": ("#f08648", "#f79654"),
    "ramp10": ("#f4973e", "#f7b145"),
    "ramp11": ("#f5a83a", "#f3d23c"),
    "bad": ("#b23b00", "#ff8a5c"),
    "good": ("#00714f", "#4fd1a5"),
}
"""Name of a CSS variable -> (on a light page, on a dark one)."""

_DURATIONS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
_SIZES = ((2.0**40, "TB"), (2.0**30, "GB"), (2.0**20, "MB"))


def variables() -> str:
    """The CSS rules that define them: by what the reader's system prefers."""
    light, dark = (
        f"color-scheme: {scheme}; " + " ".join(f"--{name}: {pair[at]};" for name, pair in ON_PAGE.items())
        for at, scheme in enumerate(("light", "dark"))
    )
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def duration_unit(largest_s: float) -> tuple[float, str]:
    """(divisor, unit) of durations up to `largest_s`: at least two of the unit."""
    return next(((scale, unit) for scale, unit in _DURATIONS if largest_s >= 2 * scale), (1.0, "seconds"))


def axis_unit(unit: str, highest: float) -> tuple[float, str]:
    """(divisor, unit as it is shown) of values up to `highest`. unit: of an `Axis`."""
    return (1.0, {"percent": "%", "watts": "W"}[unit]) if unit != "bytes" else size_unit(highest)


def size_unit(largest_bytes: float) -> tuple[float, str]:
    """(divisor, unit) of sizes up to `largest_bytes`."""
    return next(((scale, unit) for scale, unit in _SIZES if largest_bytes >= scale), (2.0**20, "MB"))
