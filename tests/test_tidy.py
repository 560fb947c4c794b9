"""Rules of style that no linter knows, each with what to do instead in its message.

A rule stands here only if it was broken once, or if breaking it breaks the design: what the native
modules may import, who may touch a file, how long a file may grow.
"""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NATIVE = "replog/_native/"
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100
TEXT_COLUMNS_MAX = 119
CODE = (".py", ".pyx", ".pxd", ".pyi", ".c", ".h")

# A native module cimports or imports only modules of a line above its own.
NATIVE_ORDER = (
    {
        "arguments",
        "batch_format",
        "clock_table",
        "crc32c",
        "file_system",
        "message_cursor",
        "mutex",
    },
    {"file_replacement", "log_guard"},
    {"mapped_file"},
    {
        "file_cut",
        "recorded_calls",
        "record_batch",
        "record_walk",
        "compression",
        "producer_snapshot",
        "snapshot_files",
        "transaction_list",
    },
    {"record_columns", "input_columns", "slot_array"},
    {"arrow_batch", "batch_cursor"},
    {
        "record_encoder",
        "record_decoder",
        "offset_index",
        "time_index",
        "framed_messages",
        "leader_epoch_cache",
        "producer_state",
        "transaction_index",
    },
    {"batch_set", "segment_files", "stretch_decoder"},
    {"log_segment", "retired_files"},
    {"log_slice", "segment_list"},
    {"log_state", "append_result"},
    {"segment_maker", "epoch_file", "log_producers", "log_lookup", "log_sync"},
    {"aborted_transactions", "log_start"},
    {"log_cut"},
    {"log_writer"},
    {"log_follower", "log_retention"},
    {"log"},
    {"segment_listing", "segment_recovery"},
    {"log_recovery"},
)
SYSTEM_CALL_MODULES = {"file_system", "mapped_file", "recorded_calls"}


@functools.cache
def tracked() -> tuple[str, ...]:
    """Every file of the project that is not a golden one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = sorted(filter(None, listed.stdout.split("\0")))
    return tuple(
        name for name in names if not name.startswith("tests/golden/") and (ROOT / name).is_file()
    )


def files(*endings: str, under: tuple[str, ...] = ("",)) -> list[str]:
    return [name for name in tracked() if name.endswith(endings) and name.startswith(under)]


@functools.cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def numbered(name: str) -> Iterator[tuple[int, str]]:
    return enumerate(text_of(name).splitlines(), start=1)


def code_lines(name: str) -> Iterator[tuple[int, str]]:
    """Lines of Cython without comments, strings and docstrings (near enough for a word search)."""
    blank = re.compile(r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*')
    stripped = blank.sub(lambda found: "\n" * found.group().count("\n"), text_of(name))
    return enumerate(stripped.splitlines(), start=1)


def none_of(found: list[str], instead: str) -> None:
    assert not found, f"{instead}\n  " + "\n  ".join(found)


def test_no_file_is_longer_than_500_lines():
    sizes = {name: text_of(name).count("\n") for name in files(*CODE)}
    none_of(
        [f"{name}: {lines} lines" for name, lines in sizes.items() if lines > FILE_LINES_MAX],
        f"a file over {FILE_LINES_MAX} lines hides a noun; move that noun to a file of its own:",
    )


def functions_of(name: str) -> Iterator[tuple[str, int, int]]:
    """Name, first line and length in lines of each function."""
    if name.endswith(".py"):
        for node in ast.walk(ast.parse(text_of(name))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1
        return
    head = re.compile(r"( *)(?:def|cpdef|cdef)\b(?!.*\bextern\b|\s+class\b)[^=\n]*?(\w+)\(")
    started: list[tuple[int, str, int]] = []
    last_code = 0
    signature_open = False
    for number, line in numbered(name):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        while started and indent <= started[-1][0] and not signature_open:
            _, function, first = started.pop()
            yield function, first, last_code - first + 1
        found = head.match(line)
        if found:
            started.append((indent, found.group(2), number))
        if found or signature_open:
            signature_open = not line.split("#")[0].rstrip().endswith(":")
        last_code = number
    for _, function, first in started:
        yield function, first, last_code - first + 1


def test_no_function_is_longer_than_70_lines():
    none_of(
        [
            f"{name}:{first}: {function} has {lines} lines"
            for name in files(".py", ".pyx")
            for function, first, lines in functions_of(name)
            if lines > FUNCTION_LINES_MAX
        ],
        f"a function over {FUNCTION_LINES_MAX} lines does two things; name the second one:",
    )


def test_no_line_is_wider_than_100_columns():
    none_of(
        [
            f"{name}:{number}: {len(line)} columns"
            for name in files(*CODE)
            for number, line in numbered(name)
            if len(line) > COLUMNS_MAX
        ],
        f"break the line before column {COLUMNS_MAX}:",
    )


def test_lines_of_documents_are_under_120_columns():
    none_of(
        [
            f"{name}:{number}: {len(line)} columns"
            for name in files(".md")
            for number, line in numbered(name)
            if len(line) > TEXT_COLUMNS_MAX
        ],
        "break the line before column 120; make a list of a table that is wider:",
    )


def test_nothing_is_left_for_later_without_an_issue():
    left = re.compile(r"\b(FIX" + r"ME|XX" + r"X|HA" + r"CK)\b|\bTO" + r"DO(?!\(#\d+\))")
    none_of(
        [
            f"{name}:{number}: {line.strip()}"
            for name in files(*CODE)
            for number, line in numbered(name)
            if left.search(line)
        ],
        "do it now, or file an issue and write TO" + "DO(#issue):",
    )


@functools.cache
def names_bound_in(name: str) -> tuple[tuple[int, str], ...]:
    """Line and name of every variable, argument, attribute, function and class that is made."""
    bound: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(text_of(name))):
        match node:
            case ast.Name(id=identifier, ctx=ast.Store()):
                bound.append((node.lineno, identifier))
            case ast.Attribute(attr=identifier, ctx=ast.Store()):
                bound.append((node.lineno, identifier))
            case ast.arg(arg=identifier):
                bound.append((node.lineno, identifier))
            case ast.FunctionDef(name=identifier) | ast.ClassDef(name=identifier):
                bound.append((node.lineno, identifier))
    return tuple(bound)


EMPTY_NAMES = {"data", "info", "obj", "tmp"}


def test_no_name_says_nothing():
    found = [
        f"{name}:{number}: {identifier}"
        for name in files(".py")
        for number, identifier in names_bound_in(name)
        if identifier in EMPTY_NAMES
    ]
    word = re.compile(r"(?<![\w.])(data|info|obj|tmp)\b(?!\s*\()")
    found += [
        f"{name}:{number}: {line.strip()}"
        for name in files(".pyx", ".pxd")
        for number, line in code_lines(name)
        if word.search(line)
    ]
    none_of(found, "name the thing (batch, payload, entry, path), not its being a thing:")


def test_no_module_is_a_drawer():
    drawers = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}
    none_of(
        [name for name in files(*CODE) if drawers & set(Path(name).with_suffix("").parts)],
        "name the module by the noun in it; what has no noun belongs where it is used:",
    )


def test_a_logger_is_called_logger():
    none_of(
        [
            f"{name}:{number}"
            for name in files(".py")
            for number, line in numbered(name)
            if re.match(r"\s*(?!logger\b)\w+\s*=\s*logging\.getLogger", line)
        ],
        "a log is a log of records here; call it `logger`:",
    )


def test_no_test_sleeps():
    call = re.compile(r"\b(time|asyncio)\.sl" + r"eep\(|from time import .*\bsleep\b")
    none_of(
        [
            f"{name}:{number}: {line.strip()}"
            for name in files(".py", under=("tests/", "bench/"))
            for number, line in numbered(name)
            if call.search(line)
        ],
        "wait for the event itself (threading.Event, a pipe, a polled condition with a deadline):",
    )


def test_no_machine_path_is_written_down():
    machine = re.compile(r"(?<![\w.$}/*<:-])/(?:home|root|Users|work)/\w")
    none_of(
        [
            f"{name}:{number}: {line.strip()[:90]}"
            for name in files(*CODE, ".md", ".toml", ".yaml", ".txt", "Makefile", ".ci/run")
            for number, line in numbered(name)
            if machine.search(line)
        ],
        "take the path as an argument, or derive it from the file that needs it:",
    )


def swallows(handler: ast.ExceptHandler) -> bool:
    """Whether it catches everything and does not raise again."""
    names = {"Exception", "BaseException"}
    whole = handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in names
    )
    return whole and not any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def test_exception_is_caught_whole_only_once_per_runtime_module():
    counts = {
        name: sum(
            isinstance(node, ast.ExceptHandler) and swallows(node)
            for node in ast.walk(ast.parse(text_of(name)))
        )
        for name in files(".py", under=("replog/", "spark_integration/"))
    }
    none_of(
        [
            f"{name}: {count}"
            for name, count in counts.items()
            if count > (1 if name.startswith("replog/runtime/") else 0)
        ],
        "catch the types that can be handled; only the top of a runtime task catches all, to fail:",
    )


def test_nothing_imports_the_package_root_from_inside():
    submodules = {Path(name).stem for name in files(".py", under=("replog/",))} | {
        Path(name).parent.name for name in files("__init__.py", under=("replog/",))
    }
    found = []
    for name in files(".py", ".pyx", under=("replog/",)):
        for number, line in numbered(name):
            imported = re.match(r"\s*from replog import (.+)", line)
            words = set(re.findall(r"\w+", imported.group(1))) if imported else set()
            if re.match(r"\s*import replog\s*$", line) or words - submodules - {"as"}:
                found.append(f"{name}:{number}: {line.strip()}")
    none_of(found, "import from the module that defines it; replog/__init__.py only re-exports:")


def test_the_pure_core_asks_no_identity_of_the_process():
    none_of(
        [
            f"{name}:{node.lineno}: {node.func.id}()"
            for name in files(".py", under=("replog/replication/", "replog/controller/"))
            for node in ast.walk(ast.parse(text_of(name)))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"id", "hash", "open", "print"}
        ],
        "its value differs between runs, or it is I/O; take what you need as an argument:",
    )


def native_sources() -> list[str]:
    return files(".pyx", ".pxd", under=(NATIVE,))


def rank_of(module: str) -> int | None:
    return next((rank for rank, names in enumerate(NATIVE_ORDER) if module in names), None)


def test_native_modules_import_only_what_stands_below_them():
    found = []
    imported = re.compile(
        r"\s*(?:from\s+(replog[\w.]*)\s+c?import\s+(\w+)|c?import\s+(replog[\w.]*))"
    )
    for name in native_sources():
        own = rank_of(Path(name).stem)
        if own is None:
            found.append(f"{name}: has no place in NATIVE_ORDER; put it where it belongs")
            continue
        for number, line in numbered(name):
            match = imported.match(line)
            if not match:
                continue
            target = match.group(1) or match.group(3)
            if target == "replog._native":
                target = f"{target}.{match.group(2)}"
            module = target.removeprefix("replog._native.")
            rank = rank_of(module)
            same = module == Path(name).stem
            if target != "replog.errors" and not same and (rank is None or rank >= own):
                found.append(f"{name}:{number}: {line.strip()}")
    none_of(found, "native modules know replog.errors and the modules of earlier lines only:")


def test_native_modules_have_no_clock_no_threads_and_no_environment():
    banned = re.compile(
        r"\s*(?:from|import|cimport)\s+(?:time|datetime|logging|threading|random|asyncio)\b"
        r"|.*\bos\.(?:environ|getenv|putenv)\b"
    )
    # Codec objects are kept per thread.
    excepted = {("compression", "import threading")}
    none_of(
        [
            f"{name}:{number}: {line.strip()}"
            for name in native_sources()
            for number, line in numbered(name)
            if banned.match(line) and (Path(name).stem, line.strip()) not in excepted
        ],
        "native code owns bytes; take the time as now_ms and leave policy to Python:",
    )


def test_only_the_system_call_table_touches_files():
    native = re.compile(
        r"\bcimport\b.*\bposix\.(?!types|stat)|from posix\.(?!types|stat)|<fcntl\.h>"
    )
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in native_sources()
        if Path(name).stem not in SYSTEM_CALL_MODULES
        for number, line in numbered(name)
        if native.search(line)
    ]
    python = re.compile(
        r"\bos\.(?:open|write|pwrite|fsync|fdatasync|rename|replace|unlink|remove|ftruncate|mkdir"
        r"|rmdir|truncate)\(|(?<![\w.])(?<!def )open\("
        r"|\.(?:write_text|write_bytes|unlink|rename|mkdir)\("
    )
    found += [
        f"{name}:{number}: {line.strip()}"
        for name in files(".py", under=("replog/storage/",))
        for number, line in numbered(name)
        if python.search(line)
    ]
    none_of(found, "go through replog._native.mapped_file, so that tests can fail and record it:")


def test_every_native_module_has_a_stub():
    none_of(
        [
            name
            for name in files(".pyx", under=(NATIVE,))
            if not (ROOT / name).with_suffix(".pyi").exists()
        ],
        "write the .pyi beside it, the face that Python sees:",
    )


def test_native_modules_state_their_directives():
    wanted = ("language_level=3", "boundscheck=True", "auto_pickle=False", "autotestdict=False")
    none_of(
        [
            f"{name}: {', '.join(missing)}"
            for name in files(".pyx", under=(NATIVE,))
            if (missing := [one for one in wanted if one not in text_of(name)[:2000]])
        ],
        "begin the file with `# cython: ...`; bounds are off per function only:",
    )


def test_native_modules_use_no_assert_and_no_textual_include():
    banned = re.compile(r"\s*(?:assert\b|include\s|DEF\s|IF\s)")
    none_of(
        [
            f"{name}:{number}: {line.strip()}"
            for name in native_sources()
            for number, line in code_lines(name)
            if banned.match(line)
        ],
        "asserts vanish under -O: call invariant(); cimport, not include; C, not DEF and IF:",
    )


def test_no_golden_file_is_hidden_by_an_ignore_rule():
    ignored = subprocess.run(
        ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "tests/golden"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    none_of(ignored.stdout.split(), "add an exception to .gitignore:")
