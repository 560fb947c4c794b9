"""One seed in a process of its own: `workout.py KIND SEED SECONDS DIRECTORY`.

KIND: log, directory or cluster. Prints a line of JSON that says how much was done.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import sys
import time
from pathlib import Path

from tests.threads.cluster_work import ClusterWork
from tests.threads.directory_work import DirectoryWork
from tests.threads.log_work import LogWork

KINDS = {"log": LogWork, "directory": DirectoryWork, "cluster": ClusterWork}
ROUND_S = {"log": 0.25, "directory": 0.4, "cluster": 1.5}


def main() -> int:
    faulthandler.enable()
    logging.getLogger("replog").setLevel(logging.CRITICAL)
    kind, seed, seconds, directory = sys.argv[1:5]
    ends_at = time.monotonic() + float(seconds)
    work = KINDS[kind](int(seed), Path(directory))
    rounds = 0
    while time.monotonic() < ends_at:
        work.round(ROUND_S[kind])
        rounds += 1
    work.end()
    print(json.dumps({"rounds": rounds, "calls": work.calls, "refusals": work.refusals}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
