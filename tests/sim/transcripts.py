"""Reads, replays and rewrites the transcripts of `scenarios/`: `make scenarios [REWRITE=1]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.sim.stage import Stage
from tests.sim.whole_cluster import WholeCluster

SCENARIOS = Path(__file__).parent / "scenarios"
PROMPT = "> "
INDENT = "    "


def replayed(text: str) -> str:
    """The transcript with what its commands print now."""
    return "".join(f"{line}\n" for line in _lines(text))


def _lines(text: str) -> Iterator[str]:
    stage: Stage | WholeCluster = WholeCluster() if f"{PROMPT}whole " in text else Stage()
    for line in text.splitlines():
        if line.startswith(INDENT):
            continue
        yield line
        if line.startswith(PROMPT):
            for printed in stage.run(line.removeprefix(PROMPT)):
                yield f"{INDENT}{printed}"


def scenarios() -> list[Path]:
    return sorted(SCENARIOS.glob("*.txt"))


def main() -> int:
    rewrite = "--rewrite" in sys.argv[1:]
    different = 0
    for path in scenarios():
        text = path.read_text()
        now = replayed(text)
        if now == text:
            continue
        different += 1
        if rewrite:
            path.write_text(now)
            print(f"{path.name}: rewritten; read the difference before you commit it")
        else:
            print(f"{path.name}: does not happen as written")
    print(f"{len(scenarios())} scenarios, {different} different")
    return 0 if rewrite or not different else 1


if __name__ == "__main__":
    sys.exit(main())
