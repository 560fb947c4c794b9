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
