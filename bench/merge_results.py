"""Puts the benchmarks of one run into a file of results, in place of their earlier figures.

python -m bench.merge_results RUN.json RESULTS.json
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def merge(run: Path, results: Path) -> None:
    """The other benchmarks of `results` stay; `run` goes. A crash leaves the old file."""
    merged = json.loads(run.read_text())
    measured = {one["fullname"] for one in merged["benchmarks"]}
    if results.exists() and results.stat().st_size:
        kept = json.loads(results.read_text())["benchmarks"]
        merged["benchmarks"] = [
            *(one for one in kept if one["fullname"] not in measured),
            *merged["benchmarks"],
        ]
    staged = results.with_suffix(".new")
    staged.write_text(json.dumps(merged, indent=1))
    os.replace(staged, results)
    run.unlink()


if __name__ == "__main__":
    merge(Path(sys.argv[1]), Path(sys.argv[2]))
