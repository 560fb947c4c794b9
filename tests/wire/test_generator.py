"""The generator: what it makes of every form of field, and how it refuses a schema."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegen.cython_codec import write_module
from codegen.schema_table import SchemaError, read_schema
from codegen.stub import write_stub
from codegen.write_codecs import STUBS, modules
from replog.errors import MalformedMessageError
from tests.fuzz.fuzzing import mutate
from tests.oracle import kafka_messages
from tests.wire.message_values import as_fields, built, messages

ROOT = Path(__file__).parents[2]
SCHEMA = read_schema("every_form", (Path(__file__).parent / "every_form.schema").read_text())
(KIND,) = SCHEMA.messages
BUILD = """
import sys
from setuptools import Extension, setup
from Cython.Build import cythonize
setup(
    script_args=["build_ext", "--quiet", "--build-lib", sys.argv[2]],
    ext_modules=cythonize([Extension("every_form", [sys.argv[1]])], include_path=["."], quiet=True),
)
"""


@pytest.fixture(scope="module")
def every_form(tmp_path_factory):
    """The module that the generator writes for `every_form.schema`, compiled."""
    folder = tmp_path_factory.mktemp("every_form")
    source = folder / "every_form.pyx"
    source.write_text(write_module(SCHEMA))
    ran = subprocess.run(
        [sys.executable, "-c", BUILD, str(source), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (library,) = folder.glob("*.so")
    spec = importlib.util.spec_from_file_location("every_form", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("version", range(5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chance=st.data(), seed=st.randoms(use_true_random=False))
def test_every_form_of_field_is_as_the_twin_has_it(every_form, version, chance, seed):
    """Method: random messages written by both, and mutants of them read by both."""
    fields = chance.draw(messages(KIND, version))
    message = built(every_form, KIND, fields)
    content = message.encode(version)
    assert content == kafka_messages.encode(KIND, fields, version)
    assert every_form.EveryForm.decode(content, version) == message
    for _ in range(10):
        mutant = mutate(content, seed)
        try:
            expected = kafka_messages.decode_whole(KIND, mutant, version)
        except kafka_messages.BadBytesError:
            with pytest.raises(MalformedMessageError):
                every_form.EveryForm.decode(mutant, version)
        else:
            found = as_fields(KIND, every_form.EveryForm.decode(mutant, version))
            assert repr(found | {"ratio": 0}) == repr(expected | {"ratio": 0})


@pytest.mark.slow
def test_records_are_a_view_of_what_was_read(every_form):
    content = bytearray(every_form.EveryForm(batches=b"batch").encode(3))
    message = every_form.EveryForm.decode(content, 3)
    at = content.index(b"batch")
    content[at : at + 5] = b"BATCH"
    assert bytes(message.batches) == b"BATCH"


def test_committed_stubs_are_those_of_the_schemas():
    for module in modules():
        stub = STUBS / f"{module.name}.pyi"
        assert stub.read_text() == write_stub(module), "run python -m codegen.write_codecs"


GOOD = "message M api 1 versions 0-2 flexible 1+\n"
BAD = [
    ("    a int32\n", "expected a message before its fields"),
    ("message M api 1\n", "expected `message NAME api KEY"),
    (GOOD + "    a\n", "expected `FIELD TYPE"),
    (GOOD + "    a int31\n", "expected a known type, found int31"),
    (GOOD + "    a int32 1*\n", "expected versions N, N+ or N-M"),
    (GOOD + "    a int8 = 128\n", "expected a default of type int8, found 128"),
    (GOOD + "    a int8\n    a int8\n", "expected field a once"),
    (GOOD + "    a int8 tag 0\n", "in flexible versions only"),
    (GOOD + GOOD, "expected one struct named M"),
    (GOOD + "    from int8\n", "leave free, found from"),
    (GOOD + "    encode int8\n", "leave free, found encode"),
    (GOOD + "    a string nullable 1+ = null\n", "default null in every version"),
    (GOOD + "    a Inner\n", "expected fields of struct Inner"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD, ids=[row[1] for row in BAD])
def test_a_schema_that_cannot_be_is_refused_by_its_line(text, sentence):
    with pytest.raises(SchemaError) as refused:
        read_schema("bad", text)
    assert sentence in str(refused.value)
    assert "bad.schema" in str(refused.value)
