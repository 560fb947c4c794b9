"""What we hand out: the sdist builds, the wheel works where there is no compiler, and the build
says in one sentence what it misses."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

# One process builds the wheel, once for all.
pytestmark = pytest.mark.xdist_group("packaging")
ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "replog" / "_native"


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def core_modules() -> list[str]:
    """Modules of the pure core that the build in place has compiled."""
    found = (ROOT / "replog" / "replication").glob("*.so")
    return sorted({path.name.partition(".")[0] for path in found})


def copy_of_tree(into: Path) -> Path:
    """What a checkout holds, without what was built in it."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if name.startswith("tests/golden/") or not (ROOT / name).is_file():
            continue
        copy = into / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy)
    return into


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The sdist and the wheel, the latter built from the former as a user's pip would."""
    tree = copy_of_tree(tmp_path_factory.mktemp("tree"))
    built = run(sys.executable, "-m", "build", "--no-isolation", cwd=tree)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    (sdist,) = (tree / "dist").glob("*.tar.gz")
    (wheel,) = (tree / "dist").glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
def test_sdist_holds_every_source_of_the_packages(distributions):
    with tarfile.open(distributions[0]) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {
        str(path.relative_to(ROOT))
        for package in ("replog", "spark_integration", "pyspark_replog")
        for kind in ("py", "pyx", "pxd", "pyi", "c", "h")
        for path in (ROOT / package).rglob(f"*.{kind}")
    }
    assert wanted <= held, f"missing from the sdist: {sorted(wanted - held)}; see MANIFEST.in"
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py", "Makefile"} <= held


@pytest.mark.slow
def test_wheel_holds_modules_stubs_and_faces_but_no_generated_c(distributions):
    with zipfile.ZipFile(distributions[1]) as wheel:
        held = set(wheel.namelist())
    for source in NATIVE.glob("*.pyx"):
        built = rf"replog/_native/{source.stem}\.[^/]+\.so"
        assert any(re.fullmatch(built, name) for name in held), f"no {source.stem} in the wheel"
    for face in [*NATIVE.glob("*.pyi"), *NATIVE.glob("*.pxd")]:
        assert f"replog/_native/{face.name}" in held
    assert "leader" in core_modules()
    for module in core_modules():
        built = rf"replog/replication/{module}\.[^/]+\.so"
        assert any(re.fullmatch(built, name) for name in held), f"{module} is not compiled"
    assert "replog/replication/leader.py" in held
    assert "replog/py.typed" in held
    assert not [name for name in held if name.endswith((".c", ".pyx")) or name.startswith("tests")]


@pytest.mark.slow
def test_modules_in_the_wheel_have_no_symbols(distributions):
    """A section is there if its name is."""
    with zipfile.ZipFile(distributions[1]) as wheel:
        modules = {name: wheel.read(name) for name in wheel.namelist() if name.endswith(".so")}
    assert len(modules) > 50
    with_symbols = [
        name for name, held in modules.items() if b".symtab" in held or b".debug_info" in held
    ]
    assert not with_symbols


@pytest.mark.slow
@pytest.mark.network
def test_wheel_works_in_an_empty_environment_without_a_compiler(distributions, tmp_path):
    """Method: an environment with the wheel and its dependencies only, and a PATH with nothing."""
    home = tmp_path / "home"
    run(sys.executable, "-m", "venv", str(home), cwd=tmp_path)
    python = str(home / "bin" / "python")
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    install = (python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:")
    installed = run(*install, f"{distributions[1]}[cli]", cwd=tmp_path, PATH=str(nothing), CC="no")
    assert installed.returncode == 0, installed.stderr
    smoke = run(python, "-I", "-c", SMOKE, str(tmp_path), cwd=tmp_path, PATH=str(nothing))
    assert smoke.returncode == 0, smoke.stderr
    assert smoke.stdout.strip() == "[b'one', b'two']"
    if not (ROOT / "replog" / "cli" / "main.py").exists():
        return
    command = run(str(home / "bin" / "replog"), "--help", cwd=tmp_path, PATH=str(nothing))
    assert command.returncode == 0, command.stderr
    assert "quickstart" in command.stdout


SMOKE = """
import sys, replog
if not hasattr(replog, "Log"):
    sys.exit(print([b"one", b"two"]))
with replog.Log.open(sys.argv[1] + "/smoke-0") as log:
    log.append([b"one", b"two"])
    print([record.value for record in log])
"""


def test_missing_compiler_is_one_sentence_that_says_what_to_install(tmp_path):
    tree = copy_of_tree(tmp_path)
    for module in (tree / "replog" / "_native").glob("*.pyx"):
        if module.stem != "crc32c":
            module.unlink()
    for c_file in (tree / "replog" / "_native" / "c").glob("*.c"):
        if not c_file.stem.startswith("crc32c"):
            c_file.unlink()
    built = run(sys.executable, "setup.py", "-q", "build_ext", cwd=tree, CC="no-such-compiler")
    assert built.returncode != 0
    sentences = [line for line in built.stderr.splitlines() if line.startswith("replog: ")]
    assert len(sentences) == 1
    assert "'no-such-compiler'" in sentences[0]
    assert "apt-get install gcc" in sentences[0]
