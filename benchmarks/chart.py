"""Bar charts as SVG: a bar per measured thing, made of one or more stages, with its spread and its figure beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_COLOURS = ("#256c5a", "#c8862b", "#4b6a9b", "#a8485b", "#7a7a3a", "#6b5b95", "#5f8f8a", "#8a6a50")
_LABELS, _BARS, _FIGURES = 290, 430, 130  # widths of the three columns
_ROW, _THICK = 24, 15


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        label: what it is of.
        stages: name → length; one of them for a plain bar.
        spread: the least and the greatest value measured, if there were several.
        is_ours: drawn in full colour; others are paler.
    """

    label: str
    stages: Mapping[str, float]
    spread: tuple[float, float] | None = None
    is_ours: bool = True

    @property
    def length(self) -> float:
        """The whole bar."""
        return sum(self.stages.values())


def bar_chart(title: str, groups: Mapping[str, Sequence[Bar]], note: str = "") -> str:
    """The SVG text; `groups` maps a heading to the bars below it, and each group has a scale of its own."""
    names = list(dict.fromkeys(name for bars in groups.values() for bar in bars for name in bar.stages))
    parts, y = [_text(12, 24, title, size=15, weight="bold")], 38
    if len(names) > 1:
        x = 12.0
        for n, name in enumerate(names):
            parts.append(_box(x, y, 10, 10, _COLOURS[n % len(_COLOURS)]))
            parts.append(_text(x + 14, y + 9, name))
            x += 26 + 6.6 * len(name)
        y += 18
    for heading, bars in groups.items():
        y += _ROW
        parts.append(_text(12, y, heading, weight="bold"))
        longest = max((max(bar.length, *(bar.spread or [0])) for bar in bars), default=0) or 1
        for bar in bars:
            y += 8
            parts += _bar(bar, y, _BARS / longest, names)
            y += _ROW - 8
        y += 4
    if note:
        y += _ROW
        parts.append(_text(12, y, note, size=10))
    width, height = _LABELS + _BARS + _FIGURES, y + 14
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f"<title>{escape(title)}</title>", _box(0, 0, width, height, "#fff"), *parts, "</svg>\n"])


def _bar(bar: Bar, y: float, scale: float, names: Sequence[str]) -> list[str]:
    parts, x = [_text(_LABELS - 8, y + 12, bar.label, anchor="end")], float(_LABELS)
    for name, length in bar.stages.items():
        colour = _COLOURS[names.index(name) % len(_COLOURS)] if len(names) > 1 else _COLOURS[0]
        parts.append(_box(x, y, length * scale, _THICK, colour, opacity=1 if bar.is_ours else 0.45))
        x += length * scale
    if bar.spread:
        low, high = (_LABELS + value * scale for value in bar.spread)
        middle = y + _THICK / 2
        parts.append(f'<path d="M{low:.1f} {middle:.1f}H{high:.1f}" stroke="#222"/>')
        x = max(x, high)
    parts.append(_text(x + 6, y + 12, figure(bar.length)))
    return parts


def figure(value: float) -> str:
    """A number as people read it: three digits at least, thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _box(x: float, y: float, width: float, height: float, colour: str, opacity: float = 1) -> str:
    faded = f' opacity="{opacity}"' if opacity != 1 else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"{faded}/>'


def _text(x: float, y: float, text: str, *, size: int = 12, weight: str = "normal", anchor: str = "start") -> str:
    look = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="#222"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'
