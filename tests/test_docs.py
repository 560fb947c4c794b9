"""The documents are true: examples of the README run, and what the documents name is there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
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


def test_python_examples_run_one_after_the_other_and_once_more(folder, capsys):
    found = examples("python")
    assert len(found) >= 3
    for _ in range(2):
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
    for name in listed("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / name).read_text()):
            there = ((ROOT / name).parent / target).exists()
            assert there, f"{name} links to {target}, which is not there"


def test_make_targets_that_the_documents_name_are_there():
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text()))
        assert named <= targets, f"{name} names {sorted(named - targets)}, which make does not know"


def listed(*patterns: str) -> list[str]:
    """Files of the project, as git knows them."""
    ran = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        pytest.skip("not a git checkout")
    return [name for name in ran.stdout.splitlines() if (ROOT / name).is_file()]


SOURCES = ("replog/", "spark_integration/", "pyspark_replog/", "codegen/")


def test_every_package_has_its_paragraph():
    """Goal: the packages in ARCHITECTURE.md are the packages that there are."""
    packages = {
        str(Path(name).parent) for name in listed("*__init__.py") if name.startswith(SOURCES)
    }
    described = re.findall(r"^\*\*`([a-z_/]+)/`\*\*", ARCHITECTURE, re.MULTILINE)
    assert len(described) == len(set(described))
    assert packages - set(described) == set(), "give each a paragraph in ARCHITECTURE.md, section 2"
    assert set(described) - packages == {"tests", "bench"}, "not a package (any more)"


def test_every_module_says_at_its_head_what_it_is():
    """A .pxd without a .pyx is a module too; its head is a comment."""
    headless = []
    for name in listed("*.py", "*.pyx", "*.pxd"):
        beside = (ROOT / name).with_suffix(".pyx")
        if not name.startswith(SOURCES) or (name.endswith(".pxd") and beside.exists()):
            continue
        lines = (ROOT / name).read_text().splitlines()
        code = [line for line in lines if not line.startswith("# cython:")]
        begins = "# " if name.endswith(".pxd") else '"""'
        if not (code and code[0].removeprefix("r").startswith(begins)):
            headless.append(name)
    assert not headless, f"begin each with a docstring that says what it is: {headless}"


def test_what_the_documents_name_is_there():
    """Goal: no path and no name in ARCHITECTURE.md or CONTRIBUTING.md outlives what it names.

    Method: paths are looked up below the root and the folders that the text speaks of, every other
    word in backticks as a word somewhere in the sources.
    """
    sources = listed("*.py", "*.pyx", "*.pxd", "*.h", "*.c", "*.toml", "*.pyi", "Makefile")
    words = set(re.findall(r"\w+", "\n".join((ROOT / name).read_text() for name in sources)))
    words |= {Path(name).stem for name in listed()}
    below = ("", "replog", "replog/_native", "replog/wire", "tests", "tests/sim")
    for document in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        for named in re.findall(r"`([^`\n]+)`", (ROOT / document).read_text()):
            if named.startswith("bench/results/"):
                continue  # written by `make bench`
            if re.fullmatch(r"[\w.*-]*/[\w./*-]*|[\w-]+\.(?:md|py|txt|toml)", named):
                found = any(list((ROOT / folder).glob(named)) for folder in below)
                assert found, f"{document} names {named}, which is not there"
            else:
                gone = set(re.findall(r"(?<![*\w])\w{4,}", named)) - words
                assert not gone, f"{document} names `{named}`; no source has {sorted(gone)}"


def test_decisions_have_their_line_in_the_index():
    text = (DOCS / "decisions.md").read_text()
    titles = re.findall(r"^### (\d+)\. (.+)$", text, re.MULTILINE)
    numbers = [number for number, _ in titles]
    assert len(numbers) == len(set(numbers)), "two decisions have one number"
    index = text.partition("## Index")[2].partition("\n## ")[0]
    lines = re.findall(r"^- \*\*(\d+)\*\* (.+(?:\n  .+)*)", index, re.MULTILINE)
    assert [number for number, _ in lines] == numbers, "index and records differ in their order"
    for (number, title), (_, line) in zip(titles, lines, strict=True):
        assert " ".join(line.split()).startswith(title), f"the index calls {number} otherwise"


def test_decisions_that_are_cited_are_there():
    text = (DOCS / "decisions.md").read_text()
    numbers = set(re.findall(r"^### (\d+)\.", text, re.MULTILINE))
    for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "bench/NOTES.md", "docs/decisions.md"):
        cited = set(re.findall(r"\brecord (\d+)\b", (ROOT / name).read_text()))
        assert cited <= numbers, f"{name} cites {sorted(cited - numbers)}"


def test_invariants_that_are_cited_have_their_line_in_the_key():
    """I4, and ranges such as I23 to I28; the other way round as well."""
    key = (DOCS / "invariants.md").read_text()
    explained = set(re.findall(r"^- \*\*([ILQ]\d+)\*\* ", key, re.MULTILINE))
    cited = set()
    for name in listed("*.py", "*.pyx", "*.pxd", "*.pyi"):
        text = (ROOT / name).read_text()
        cited |= set(re.findall(r"\b[ILQ]\d{1,2}\b", text))
        for letter, first, last in re.findall(r"\b([ILQ])(\d+) to \1(\d+)\b", text):
            cited |= {f"{letter}{number}" for number in range(int(first), int(last) + 1)}
    assert cited - explained == set(), "say in docs/invariants.md what these mean"
    assert explained - cited == set(), "nothing cites these: take them out of docs/invariants.md"


def test_nothing_points_outside_the_repository():
    """Such as sections of papers that are not here, or bars in issues, which users cannot see."""
    outside = re.compile(r"\bFacts \d|\bbars? of the issue|\bissue #?\d")
    found = [
        f"{name}: {match.group()}"
        for name in listed("*.py", "*.pyx", "*.pxd", "*.pyi", "*.md", "Makefile", "*.toml")
        if name != "tests/test_docs.py"
        for match in outside.finditer((ROOT / name).read_text())
    ]
    found += [
        f"{name}: {path}"
        for name in listed("*.py", "*.pyx", "*.pxd", "*.pyi")
        for path in re.findall(r"(?<![\w./])[\w/]+\.md\b", (ROOT / name).read_text())
        if not any((folder / path).exists() for folder in (ROOT, DOCS, (ROOT / name).parent))
    ]
    assert not found, f"name the source itself (a class of Kafka's, a KIP): {found}"


def test_every_ci_runs_what_make_check_runs():
    """The steps are named in the Makefile alone; others call it."""
    assert "exec make check\n" in (ROOT / ".ci" / "run").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = re.search(r"^CI_STEPS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert steps is not None
    assert set(steps.group(1).split()) <= targets
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for command in re.findall(r"- run: (.+)$", workflow.read_text(), re.MULTILINE):
            called = re.match(r"make ([a-z-]+)", command)
            assert called is not None, f"{workflow.name}: {command}; a target of make can be tried"
            assert called.group(1) in targets


def test_no_document_says_a_thing_twice():
    """A merge that keeps both sides of a change leaves what was changed there, too.

    Heads of tables and titles, which an index repeats, are left out.
    """
    doubled = []
    for name in listed("*.md"):
        text = re.sub(r"^(?:#+ |\|).*$", "", (ROOT / name).read_text(), flags=re.MULTILINE)
        words = text.split()
        seen = set()
        for at in range(len(words) - 11):
            run = tuple(words[at : at + 12])
            if run in seen:
                doubled.append(f"{name}: {' '.join(run)}")
                break
            seen.add(run)
    assert not doubled, f"keep the one that is true: {doubled}"
