"""A real cluster manager: executors are processes of their own, so pickles and paths are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from spark_integration.session import missing
from tests.spark.in_process import written

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "local_cluster.py"


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_two_workers_read_what_the_driver_planned(tmp_path: Path) -> None:
    for number, records in ((0, 400), (1, 250)):
        written(tmp_path / "data" / f"orders-{number}", records)
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["rows"] == {"orders-0": 400, "orders-1": 250}
    assert told["tasks"] >= 7
    assert told["executors"] == 2
