"""Builds `floors.pyx` into build/bench/ when it is missing or older than its source."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
ROOT = HERE.parent
TARGET = ROOT / "build" / "bench"


def load_floors() -> ModuleType:
    """The compiled module `floors`."""
    built = TARGET / f"floors{sysconfig.get_config_var('EXT_SUFFIX')}"
    source = HERE / "floors.pyx"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        _build(source)
    spec = importlib.util.spec_from_file_location("floors", built)
    if spec is None or spec.loader is None:
        raise ImportError(f"expected an extension module at {built}, found none")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(source: Path) -> None:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    extension = Extension("floors", [str(source)], extra_compile_args=["-O3"])
    modules = cythonize([extension], build_dir=str(TARGET), include_path=[str(ROOT)], quiet=True)
    command = build_ext(Distribution({"ext_modules": modules}))
    command.build_lib = str(TARGET)
    command.build_temp = str(TARGET / "objects")
    command.finalize_options()
    command.run()
