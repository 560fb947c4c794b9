"""The figures of `replog quickstart` as lines for a human."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replog.cli.failover_run import FailoverFigures


def print_report(report: dict[str, Any], figures: FailoverFigures) -> None:
    """Print a line for each fact, names aligned."""
    rows = [*_story(report, figures), *_spark(report["spark"])]
    rows.append(("in all", f"{report['seconds']:.1f} s"))
    if report["directory"]:
        rows.append(("files", report["directory"]))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {text}")


def _story(report: dict[str, Any], figures: FailoverFigures) -> Iterator[tuple[str, str]]:
    times = "once" if report["input_passes"] == 1 else f"{report['input_passes']} times"
    yield "input", f"{report['input']}, read {times}"
    yield "produced", f"{figures.records:,} records with acks=all on three replicas"
    rates = f"{figures.records_per_second:,.0f} records/s, {figures.megabytes_per_second:,.1f} MB/s"
    yield "rate", f"{rates} of values ({figures.produce_seconds:.2f} s, failover included)"
    place = f"replica {figures.killed_leader} at offset {figures.killed_at_offset:,}"
    yield "leader killed", f"{place}, with {figures.uncommitted_records:,} uncommitted records"
    leads = f"replica {figures.new_leader} leads in epoch {figures.new_leader_epoch}"
    yield "failover", f"{figures.failover_ms:.1f} ms to the next acknowledged batch; {leads}"
    cut = f"replica 2 cut {figures.truncated_on_bystander:,} records"
    cut += f", replica {figures.killed_leader} {figures.truncated_records:,} when it came back"
    yield "truncated", cut
    back = f"back in sync {figures.back_in_sync_ms:.1f} ms after its restart"
    yield "old leader", f"{back}, {figures.caught_up_records:,} records fetched"
    size = f"{figures.bytes_compared:,} bytes in {figures.batches_compared:,} batches"
    yield "compared", f"{size}: the same on {figures.replicas_compared} replicas (raw .log files)"
    missing = f"{figures.acknowledged_missing:,} missing"
    yield "acknowledged", f"{figures.acknowledged_records:,} records, {missing}"


def _spark(counted: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if "skipped" in counted:
        yield "Spark", f"not run: {counted['skipped']}"
        return
    sizes = f"{counted['value_bytes']:,} bytes of values, last offset {counted['last_offset']:,}"
    yield "Spark count", f"{counted['records']:,} records, {sizes} ({counted['seconds']:.1f} s)"
    words = ", ".join(f"{word} {count:,}" for word, count in counted["first_words"])
    yield "Spark groups", f"most frequent first words: {words}"
