"""The least that an installed replog must do; also run from the wheel in a bare environment."""

import importlib
import importlib.resources
import pkgutil

import replog
import replog._native


def test_every_native_module_imports():
    """Goal: an extension that lacks a symbol fails here, by name. Method: import each one found."""
    for module in pkgutil.iter_modules(replog._native.__path__):
        importlib.import_module(f"replog._native.{module.name}")


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
