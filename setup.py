"""Builds the native modules; everything else is in pyproject.toml.

Every `replog/_native/NAME.pyx` becomes the extension `replog._native.NAME`, linked with the
`replog/_native/c/*.c` whose name starts with NAME. Every `replog/wire/schemas/NAME.schema` becomes
the extension `replog.wire.NAME`, by way of Cython that `codegen` writes. The pure core of a broker,
`replog/replication`, is Python that mypyc compiles as it is: it runs without, but slower.
What is generated stays under `build/`.

Environment:
    REPLOG_WERROR=1     compiler warnings are errors (CI)
    REPLOG_DEBUG=1      bounds checks everywhere, no optimisation, debug symbols
    REPLOG_SANITIZE=1   AddressSanitizer and UndefinedBehaviorSanitizer (`make asan`);
                        `thread`: ThreadSanitizer (`make tsan`)
    REPLOG_OPTIMIZE=N   gcc's level, 3 by default; 0 builds five times as fast
    REPLOG_CORE=0       leave the pure core to the interpreter, as debug and sanitizer builds do
    REPLOG_BUILD=0      no native modules: `scripts/environment` installs what is around them, and
                        `build_ext --inplace` builds them once, where they are used
"""

import os
import re
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from mypyc.build import mypycify
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from codegen.write_codecs import write_sources

NATIVE = Path("replog/_native")
CORE = Path("replog/replication")
# Values and protocols: mypyc would leave them to the interpreter.
NOT_COMPILED = {"__init__", "effects", "events", "incidents", "isr", "log_view"}
DEBUG = os.environ.get("REPLOG_DEBUG") == "1"
SANITIZERS = {"1": "address,undefined", "thread": "thread"}
SANITIZE = SANITIZERS.get(os.environ.get("REPLOG_SANITIZE", ""))
OPTIMIZE = os.environ.get("REPLOG_OPTIMIZE", "3")
VARIANT = "debug" if DEBUG else "sanitize" if SANITIZE else "release"
COMPILES = os.environ.get("REPLOG_BUILD") != "0"
COMPILES_CORE = COMPILES and VARIANT == "release" and os.environ.get("REPLOG_CORE") != "0"
JOBS = int(os.environ.get("REPLOG_BUILD_JOBS", "0")) or os.cpu_count() or 1

WARNINGS = ["-Wall", "-Wextra", "-Wsign-compare"]
# Our own C is held to more than what Cython generates can pass.
HAND_WRITTEN_WARNINGS = ["-Wconversion", "-Wshadow", "-Wstrict-prototypes"]
# Each of these is about Cython's generated text, which we cannot change.
GENERATED_EXCEPTIONS = [
    "-Wno-unused-parameter",  # `self` of static methods, METH_NOARGS' second argument
    "-Wno-missing-field-initializers",  # PyTypeObject and PyMethodDef tables
    "-Wno-cast-function-type",  # METH_FASTCALL entries cast to PyCFunction, as CPython asks
]


def c_sources_of() -> dict[str, list[str]]:
    """Each C file belongs to the module with the longest name that its own name starts with."""
    modules = sorted((source.stem for source in NATIVE.glob("*.pyx")), key=len, reverse=True)
    owned: dict[str, list[str]] = {}
    for c_file in sorted(NATIVE.glob("c/*.c")):
        owner = next((name for name in modules if c_file.stem.startswith(name)), None)
        if owner is None:
            raise SystemExit(
                f"replog: expected {c_file} to be named after a module of {NATIVE}/, found none; "
                f"rename it to MODULE.c or MODULE_purpose.c"
            )
        owned.setdefault(owner, []).append(str(c_file))
    return owned


def pyx_sources() -> list[Path]:
    """The modules to compile; in a debug build, copies with every bounds check on."""
    sources = sorted(NATIVE.glob("*.pyx"))
    if not DEBUG:
        return sources
    copies = []
    for source in [*sources, *sorted(NATIVE.glob("*.pxd"))]:
        text = re.sub(r"\bboundscheck(\(|=)False", r"boundscheck\1True", source.read_text())
        copy = Path("build/debug-source") / source
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_text() != text:
            copy.write_text(text)
        if copy.suffix == ".pyx":
            copies.append(copy)
    for package in ("replog", "replog/_native"):
        (Path("build/debug-source") / package / "__init__.py").touch()
    return copies


def extensions() -> list[Extension]:
    arguments = ["-O0", "-g", "-UNDEBUG"] if DEBUG else [f"-O{OPTIMIZE}"]
    link_arguments = []
    if SANITIZE:
        sanitizers = [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=undefined"]
        arguments = ["-O1", "-g", "-fno-omit-frame-pointer", *sanitizers]
        link_arguments = sanitizers
    if os.environ.get("REPLOG_WERROR") == "1":
        arguments.append("-Werror")
    c_sources = c_sources_of()
    return [
        Extension(
            f"{package}.{source.stem}",
            [str(source), *c_sources.get(source.stem, [])],
            include_dirs=[str(NATIVE)],
            depends=[str(header) for header in sorted(NATIVE.glob("c/*.h"))],
            extra_compile_args=[*WARNINGS, *arguments],
            extra_link_args=link_arguments,
        )
        for package, sources in (
            ("replog._native", pyx_sources()),
            ("replog.wire", write_sources()),
        )
        for source in sources
    ]


def core_sources() -> list[Path]:
    return [source for source in sorted(CORE.glob("*.py")) if source.stem not in NOT_COMPILED]


def core_modules_in_place() -> list[Path]:
    return list(CORE.glob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"))


def is_core_built_in_place() -> bool:
    """Whether it is newer than all that mypy reads for it, and whole."""
    built = core_modules_in_place()
    read = [Path("setup.py"), *Path("replog").rglob("*.py"), *Path("replog").rglob("*.pyi")]
    oldest = min((module.stat().st_mtime for module in built), default=0)
    return len(built) > len(core_sources()) and oldest > max(path.stat().st_mtime for path in read)


def core_extensions() -> list[Extension]:
    """One library of all modules of the pure core, and for each a module that stands before it."""
    # mypy judges the types in `make lint`, where all packages are; here only replog's own need be.
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    compiled = mypycify(
        [*options, *map(str, core_sources())],
        opt_level=OPTIMIZE,
        target_dir=f"build/mypyc-{VARIANT}",
        group_name="replog.replication.core",
    )
    for extension in compiled:
        # What another compiler than ours warns of must not keep anybody from installing.
        extension.extra_compile_args = [
            flag for flag in extension.extra_compile_args if flag != "-Werror"
        ]
    return compiled


class BuildNative(build_ext):
    """build_ext with warnings by kind of source, and a sentence where a tool is missing. What goes
    into a wheel has no symbols: 10 MB of modules, and 53 with them.

    The pure core is added here, where it is built: mypy takes some seconds, and other commands of
    setuptools need not wait for it.
    """

    def run(self) -> None:
        super().run()
        if self.inplace and COMPILES_CORE:
            # A text that gives the same C is not built again, but it was looked at.
            for module in core_modules_in_place():
                module.touch()

    def build_extensions(self) -> None:
        refuse_without_compiler(self.compiler.compiler[0])
        compile_one = self.compiler._compile  # the only hook distutils has for one source

        def compile_by_kind(
            target: str, source: str, extension: str, cc: list[str], extra: list[str], pp: list[str]
        ) -> None:
            hand_written = Path(source).parent.name == "c"
            flags = HAND_WRITTEN_WARNINGS if hand_written else GENERATED_EXCEPTIONS
            compile_one(target, source, extension, cc, [*extra, *flags], pp)

        self.compiler._compile = compile_by_kind
        if not self.inplace and VARIANT == "release" and sys.platform == "linux":
            for extension in self.extensions:
                extension.extra_compile_args = [*extension.extra_compile_args, "-g0"]
                extension.extra_link_args = [*extension.extra_link_args, "-Wl,--strip-all"]
        super().build_extensions()

    def finalize_options(self) -> None:
        if COMPILES and not COMPILES_CORE and self.inplace:
            for module in core_modules_in_place():
                module.unlink()
        if COMPILES_CORE and not (self.inplace and is_core_built_in_place()):
            native = self.distribution.ext_modules
            self.distribution.ext_modules = [*native, *core_extensions()]
        super().finalize_options()
        self.parallel = self.parallel or JOBS
        if VARIANT != "release":
            self.build_temp = f"{self.build_temp}-{VARIANT}"


def refuse_without_compiler(compiler: str) -> None:
    """One sentence instead of a page of compiler output."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if shutil.which(shlex.split(compiler)[0]) is None:
        raise SystemExit(
            f"replog: expected a C compiler to build the native modules, found no {compiler!r} on "
            f"PATH; install one (Debian: apt-get install gcc python3-dev)"
        )
    if not header.exists():
        raise SystemExit(
            f"replog: expected the headers of Python {version}, found no {header}; install them "
            f"(Debian: apt-get install python3-dev)"
        )


def native_modules() -> list[Extension]:
    if not COMPILES:
        return []
    return cythonize(
        extensions(),
        build_dir=f"build/cython-{VARIANT}",
        compiler_directives={"language_level": 3, "embedsignature": True},
        nthreads=JOBS,
    )


setup(ext_modules=native_modules(), cmdclass={"build_ext": BuildNative})
