"""The documents are true: every example of the README runs, and the architecture names every
module."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
FENCE = re.compile(r"(<!-- needs: spark -->\n)?```(python|console)\n(.*?)```", re.DOTALL)


def examples(language: str, *, spark: bool = False) -> list[str]:
    return [
        text
        for marker, found, text in FENCE.findall(README)
        if found == language and bool(marker) == spark
    ]


def activated() -> dict[str, str]:
    """The environment of a shell in which this interpreter's venv is active."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python_examples_run_one_after_the_other(folder, capsys):
    found = examples("python")
    assert len(found) >= 3
    namespace: dict[str, object] = {}
    for number, text in enumerate(found):
        exec(compile(text, f"README.md example {number}", "exec"), namespace)
    printed = capsys.readouterr().out
    assert printed.splitlines()[:2] == ["0 b'order-1' b'created'", "1 b'order-1' b'paid'"]
    assert "OffsetOutOfRangeError 1000000" in printed


def test_console_examples_print_what_the_readme_shows(folder):
    """Method: each `$` line runs in bash; the lines behind it are what it must print."""
    (session,) = examples("console")
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
    assert len(steps) >= 3
    for command, expected in steps:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=activated(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.stdout + ran.stderr).strip() == expected.strip(), command


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None, reason="no Java")
def test_spark_example_runs(folder):
    """A process of its own: Spark keeps its JVM as long as the interpreter lives."""
    (text,) = examples("python", spark=True)
    ran = subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env=activated(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_links_of_the_documents_lead_somewhere():
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / name).read_text()):
            assert (ROOT / target).exists(), f"{name} links to {target}, which is not there"


def test_make_targets_that_the_documents_name_are_there():
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text()))
        assert named <= targets, f"{name} names {sorted(named - targets)}, which make does not know"


def test_architecture_names_every_module():
    """Goal: the tree in ARCHITECTURE.md is the tree. Method: look for each module's name in it."""
    modules = {
        path.stem
        for package in ("replog", "spark_integration", "pyspark_replog")
        for kind in ("py", "pyx", "pxd")
        for path in (ROOT / package).rglob(f"*.{kind}")
        if path.stem != "__init__"
    }
    missing = {name for name in modules if not re.search(rf"\b{name}\b", ARCHITECTURE)}
    assert not missing, f"give each a sentence in the tree of ARCHITECTURE.md: {sorted(missing)}"
