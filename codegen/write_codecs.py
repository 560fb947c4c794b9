"""Writes every codec that is out of date: `.pyx` for the build, `.pyi` beside the schema's package.

    python -m codegen.write_codecs

Sources go to `build/generated`, stubs to `replog/wire`; stubs are committed, since type checkers
need them before anything is built, and tests/test_tidy.py holds them against the schemas.
"""

from __future__ import annotations

from pathlib import Path

from codegen.cython_codec import write_module
from codegen.schema_table import Module, read_schema
from codegen.stub import write_stub

ROOT = Path(__file__).parent.parent
SCHEMAS = ROOT / "replog" / "wire" / "schemas"
STUBS = ROOT / "replog" / "wire"
GENERATED = Path("build/generated/replog/wire")


def modules() -> list[Module]:
    """Every schema, by name."""
    return [read_schema(path.stem, path.read_text()) for path in sorted(SCHEMAS.glob("*.schema"))]


def write_sources() -> list[Path]:
    """Write the sources that the build compiles; a file that is right keeps its time."""
    written = []
    for module in modules():
        path = GENERATED / f"{module.name}.pyx"
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_if_changed(path, write_module(module))
        written.append(path)
    return written


def write_stubs() -> None:
    """Write the stubs beside the package's own modules."""
    for module in modules():
        _write_if_changed(STUBS / f"{module.name}.pyi", write_stub(module))


def _write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    write_sources()
    write_stubs()
