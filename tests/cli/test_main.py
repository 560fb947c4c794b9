"""The `replog` command itself: help, wrong usage, pipes that close, errors without a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
COMMAND = [sys.executable, "-c", "from replog.cli.main import main; main()"]


def test_help_names_every_command() -> None:
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    for name in ("append", "dump", "quickstart", "read", "spark"):
        assert f"\n  {name} " in done.stdout


def test_help_of_one_command_imports_no_other() -> None:
    program = (
        "import sys; from replog.cli.main import run; run(['dump', '--help']); "
        "assert not {'pyspark', 'replog.cli.quickstart', 'replog.cli.append'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)


def test_wrong_usage_is_exit_code_2() -> None:
    done = subprocess.run(
        [*COMMAND, "dump", "--no-such"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "No such option" in done.stderr


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    path = str(GOLDEN / "segments" / "data")
    with subprocess.Popen(
        [*COMMAND, "dump", "--json", "--records", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()
        process.wait(60)
    assert complaint == b""
    assert process.returncode in {0, 141}
