"""Builds the native modules; everything else is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

NATIVE = Path("replog/_native")
WERROR = ["-Werror"] if os.environ.get("REPLOG_WERROR") else []

extensions = [
    Extension(
        f"replog._native.{source.stem}",
        [str(source), *map(str, sorted(NATIVE.glob(f"c/{source.stem}*.c")))],
        include_dirs=[str(NATIVE)],
        extra_compile_args=["-O3", "-Wall", "-Wextra", *WERROR],
    )
    for source in sorted(NATIVE.glob("*.pyx"))
]
setup(
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",
        compiler_directives={"language_level": 3, "embedsignature": True},
    )
)
