"""What Kafka's consumer read, and which directories it was read from.

`PREFIX.expected.jsonl.gz` belongs to the directory PREFIX or those below it, `expected.jsonl.gz` to
the directories that no prefix claims; a directory called `before` below a prefix is of an earlier
time. Only directories with a high-watermark checkpoint are a broker's.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures import cases
from tests.fixtures.cases import Row

ENDINGS = {
    "expected.jsonl.gz": "read_uncommitted",
    "expected_read_committed.jsonl.gz": "read_committed",
}


@dataclasses.dataclass(frozen=True)
class Consumed:
    """One stage of a case with the file of what was consumed from it at an isolation level."""

    case: str
    stage: str
    file: str
    isolation: str

    def __str__(self) -> str:
        return f"{self.case}/{self.stage}/{self.isolation}"

    @property
    def directory(self) -> Path:
        return cases.ROOT / self.case / self.stage

    def rows(self) -> dict[str, list[Row]]:
        """Rows by partition directory name, for the partitions that were consumed."""
        read = _rows(cases.ROOT / self.case / self.file)
        return {name: [] for name in self.counts()} | read

    def counts(self) -> Row:
        """What case.json says of the reading: by partition, with `error` where it broke off."""
        counts: Row = cases.case_facts(self.case).get(self.file, {})
        return counts

    def partitions(self) -> list[cases.Partition]:
        """The partition directories of the stage that were consumed."""
        rows = self.rows()
        return [one for one in cases.partitions(self.case, self.stage) if one.name in rows]


@functools.cache
def _rows(path: Path) -> dict[str, list[Row]]:
    by_partition: dict[str, list[Row]] = defaultdict(list)
    for row in cases.lines(path):
        by_partition[f"{row['topic']}-{row['partition']}"].append(row)
    return dict(by_partition)


def _prefix(file: str) -> str:
    return next(file.removesuffix(end).removesuffix(".") for end in ENDINGS if file.endswith(end))


def _below(stage: str, prefix: str) -> bool:
    return stage == prefix or (stage.startswith(prefix + "/") and "before" not in stage)


def consumed() -> Iterator[Consumed]:
    """Every pair of a stage and what was consumed from it."""
    for case in cases.cases():
        files = [
            path.name
            for path in sorted((cases.ROOT / case).glob("*expected*.jsonl.gz"))
            if path.name.endswith(tuple(ENDINGS))
        ]
        prefixes = {_prefix(file) for file in files} - {""}
        for file in files:
            isolation = next(ENDINGS[end] for end in ENDINGS if file.endswith(end))
            for stage in cases.stages(case):
                claimed = [one for one in prefixes if stage.startswith(one + "/") or stage == one]
                mine = _below(stage, _prefix(file)) if _prefix(file) else not claimed
                directory = cases.ROOT / case / stage
                if mine and (directory / "replication-offset-checkpoint").exists():
                    yield Consumed(case, stage, file, isolation)
