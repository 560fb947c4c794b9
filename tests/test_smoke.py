"""The least that an installed replog must do; also run from the wheel in a bare environment."""

import importlib
import importlib.metadata
import importlib.resources
import pkgutil
import subprocess
import sys

import pytest

import replog
import replog._native


def test_every_native_module_imports():
    """Goal: an extension that lacks a symbol fails here, by name. Method: import each one found."""
    for module in pkgutil.iter_modules(replog._native.__path__):
        importlib.import_module(f"replog._native.{module.name}")


def test_every_public_name_is_found_and_no_other():
    for name in {*replog.__all__} - {"__version__"}:
        assert getattr(replog, name).__module__.startswith("replog.")
    assert dir(replog) == sorted(replog.__all__)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = replog.nothing_of_the_kind


def test_the_package_and_its_command_say_the_installed_version():
    assert replog.__version__ == importlib.metadata.version("replog")
    ran = subprocess.run(
        [sys.executable, "-m", "replog", "--version"], capture_output=True, check=True, text=True
    )
    assert ran.stdout.split() == ["replog,", "version", replog.__version__]


def test_the_command_imports_no_pyarrow_for_its_help():
    """Goal: a help text without the wait for what it does not use. Method: look in sys.modules."""
    script = "import sys, replog.cli.main; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_package_says_that_it_is_typed():
    assert importlib.resources.files(replog).joinpath("py.typed").is_file()


def test_records_of_every_codec_survive_a_reopen_and_a_cut(tmp_path):
    """Goal: from values through files to Arrow, on this interpreter and these libraries."""
    values = [b"record %d" % number for number in range(1000)]
    with replog.Log.open(tmp_path / "smoke-0") as log:
        for codec in replog.Codec:
            log.append(values, codec=codec)
    with replog.Log.open(tmp_path / "smoke-0") as log:
        assert log.to_arrow().column("value").to_pylist() == values * len(replog.Codec)
        log.truncate_to(1500)
        log.append(values[:3], headers=[[("h", b"1")]] * 3)
        # 1500 lay inside a batch, which went as a whole.
        assert [record.offset for record in log.records(999)] == [999, 1500, 1501, 1502]
