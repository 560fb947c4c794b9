"""The statistics as one HTML file: tables and plots, nothing fetched from anywhere.

The plots are SVG from matplotlib (the extra `report`), inside the page.
"""

from __future__ import annotations

import datetime as dt
import html
import importlib.util
import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from replog.errors import UsageError
from spark_integration.jobs.stats import StatsReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIB = 1024 * 1024
TOPICS_PLOTTED = 8
STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 66rem; padding: 0 1rem;
  color: #1c2733; background: #fff; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #dfe5ea; text-align: right; }
th { color: #51616f; font-weight: 600; } td.text, th.text { text-align: left; }
code { font-size: .85rem; } .wide { overflow-x: auto; }
figure { margin: 1rem 0; } figcaption, .note { color: #51616f; font-size: .85rem; }
svg { width: 100%; height: auto; }
"""


def require_plots() -> None:
    """Raises UsageError without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "expected matplotlib for the plots of the page, found none; "
            "install it with: pip install 'replog[report]'"
        )


def stats_page(report: StatsReport, title: str) -> str:
    """The page. Raises UsageError without matplotlib."""
    require_plots()
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        _note(
            f"{sum(one.records for one in report.topics):,} records in "
            f"{len(report.partitions)} partitions of {len(report.topics)} topics, "
            f"{sum(one.size_bytes for one in report.topics) / MIB:,.1f} MiB of segments."
        ),
        "<h2>Topics</h2>",
        _table(
            ["topic", "partitions", "records", "MiB", "compression", "skew", "skew (bytes)"],
            [
                [
                    one.topic,
                    one.partitions,
                    one.records,
                    one.size_bytes / MIB,
                    one.compression_ratio,
                    one.record_skew,
                    one.byte_skew,
                ]
                for one in report.topics
            ],
        ),
        _note(
            "Compression: bytes of keys and values in one byte of file. Skew: the largest "
            "partition to the mean; 1 where all are alike."
        ),
        _figure(_plot_rates, report, "Records a second, by the time of their batches."),
        "<h2>Partitions</h2>",
        _figure(_plot_sizes, report, "File bytes and payload bytes of each partition."),
        _table(_PARTITION_COLUMNS, [_partition_row(one) for one in report.partitions]),
        "<h2>Keys</h2>",
        _figure(_plot_keys, report, "How many keys come how often."),
        _table(
            ["topic", "partition", "key", "records", "payload bytes"],
            [
                [one.topic, one.partition, _shown(one.key), one.records, one.payload_bytes]
                for one in report.keys
            ],
        ),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


_PARTITION_COLUMNS = [
    "topic",
    "partition",
    "offsets",
    "records",
    "batches",
    "MiB",
    "compression",
    "codecs",
    "keys",
    "tombstones",
    "largest key",
    "first time",
    "last time",
    "records/s",
]


def _partition_row(one: Any) -> list[object]:
    codecs = ", ".join(f"{name} {count}" for name, count in sorted(one.codecs.items()))
    share = None if one.largest_key_share is None else f"{one.largest_key_share:.1%}"
    return [
        one.topic,
        one.partition,
        f"[{one.start_offset}, {one.end_offset})",
        one.records,
        one.batches,
        one.size_bytes / MIB,
        one.compression_ratio,
        codecs,
        one.keys,
        one.tombstones,
        share,
        _time(one.min_timestamp),
        _time(one.max_timestamp),
        one.records_per_second,
    ]


def _time(stamp_ms: int | None) -> str | None:
    """UTC to the second; the number itself where no calendar has it."""
    if stamp_ms is None:
        return None
    try:
        moment = dt.datetime.fromtimestamp(stamp_ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(stamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _shown(key: bytes) -> str:
    text = key.decode(errors="backslashreplace")
    return text if len(text) <= 60 else f"{text[:57]}..."


def _note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>'


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    listed = list(rows)
    words = [any(isinstance(row[at], str) for row in listed) for at in range(len(names))]

    def cells(tag: str, row: Iterable[object]) -> str:
        return "".join(
            f"<{tag}{' class=text' if word else ''}>{_cell(cell)}</{tag}>"
            for cell, word in zip(row, words, strict=True)
        )

    lines = [f"<tr>{cells('td', row)}</tr>" for row in listed]
    head = f"<thead><tr>{cells('th', names)}</tr></thead>"
    return f'<div class="wide"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>'


def _cell(cell: object) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    return f"{cell:,}" if isinstance(cell, int) else html.escape(str(cell))


def _figure(plot: Callable[[Axes, StatsReport], None], report: StatsReport, caption: str) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "replog", "font.size": 9}):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        plot(axes, report)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue()
    svg = svg[svg.index("<svg") :]
    return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _plotted(report: StatsReport) -> list[str]:
    """The largest topics; more lines than that tell nothing."""
    by_size = sorted(report.topics, key=lambda one: -one.size_bytes)
    return sorted(one.topic for one in by_size[:TOPICS_PLOTTED])


def _plot_rates(axes: Axes, report: StatsReport) -> None:
    for topic in _plotted(report):
        points = [one for one in report.rates if one.topic == topic]
        stamps = [one.start_ms for one in points]
        if all(0 <= stamp < 253_402_300_800_000 for stamp in stamps):
            times: list[Any] = [dt.datetime.fromtimestamp(at / 1000, dt.UTC) for at in stamps]
        else:
            continue  # times that no calendar has cannot be drawn beside those that it has
        rates = [one.records / one.seconds for one in points]
        axes.plot(times, rates, drawstyle="steps-post", marker=".", label=topic)
    axes.set_ylabel("records/s")
    axes.set_ylim(bottom=0)
    if axes.lines:
        axes.legend(frameon=False, fontsize=8)


def _plot_sizes(axes: Axes, report: StatsReport) -> None:
    largest = sorted(report.partitions, key=lambda one: -one.size_bytes)[:40]
    names = [f"{one.topic}-{one.partition}" for one in largest]
    places = range(len(names))
    axes.bar(
        [at - 0.2 for at in places], [one.size_bytes / MIB for one in largest], 0.4, label="file"
    )
    payload = [(one.key_bytes + one.value_bytes) / MIB for one in largest]
    axes.bar([at + 0.2 for at in places], payload, 0.4, label="keys and values")
    axes.set_xticks(list(places), names, rotation=60 if len(names) > 6 else 0, fontsize=7)
    axes.set_ylabel("MiB")
    axes.legend(frameon=False, fontsize=8)


def _plot_keys(axes: Axes, report: StatsReport) -> None:
    for topic in _plotted(report):
        found = report.key_frequencies.get(topic)
        if found:
            axes.plot(*zip(*found, strict=True), marker=".", linestyle="", label=topic)
    axes.set(xscale="log", yscale="log", xlabel="records of a key", ylabel="keys")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")
    if axes.lines:
        axes.legend(frameon=False, fontsize=8)


def write_page(path: str | os.PathLike[str], page: str) -> None:
    """Put the page at `path`, whole or not at all."""
    place = os.path.abspath(path)
    staged = f"{place}.unfinished"
    with open(staged, "w", encoding="utf-8") as file:
        file.write(page)
    os.replace(staged, place)
