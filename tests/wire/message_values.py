"""Random messages of a schema, and generated objects as the dicts of the plain-Python twin."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from codegen.schema_table import INTEGERS, Field, Struct
from replog._native.message_cursor import Message
from tests.oracle.kafka_messages import plain_default


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    """What a field may be in a version; its default where the version lacks it."""
    if version not in field.versions:
        return st.just(plain_default(field))
    found = st.lists(one(field, version), max_size=4) if field.array else one(field, version)
    if version in field.nullable:
        found = st.none() | found
    return found | st.just(plain_default(field))


def one(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        return messages(field.struct, version)
    if field.kind in INTEGERS:
        _, low, high = INTEGERS[field.kind]
        return st.integers(low, high) | st.sampled_from([low, high, 0])
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=200),
        "bytes": st.binary(max_size=200),
        "records": st.binary(max_size=200),
    }[field.kind]


def messages(kind: Struct, version: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: values(field, version) for field in kind.fields})


def built(module: Any, kind: Struct, fields: dict[str, Any]) -> Message:
    """The generated class's object for the twin's dict."""
    given = {}
    for field in kind.fields:
        value = fields[field.name]
        if value is not None and field.struct is not None:
            inner = field.struct
            value = (
                tuple(built(module, inner, element) for element in value)
                if field.array
                else built(module, inner, value)
            )
        given[field.name] = tuple(value) if isinstance(value, list) else value
    return getattr(module, kind.name)(**given)


def as_fields(kind: Struct, message: Any) -> dict[str, Any]:
    """The twin's dict for a generated object."""
    found = {}
    for field in kind.fields:
        value = getattr(message, field.name)
        if value is not None and field.array:
            value = [as_fields(field.struct, one) if field.struct else one for one in value]
        elif value is not None and field.struct is not None:
            value = as_fields(field.struct, value)
        elif field.kind == "records" and value is not None:
            value = bytes(value)
        elif field.kind == "float64" and math.isnan(value):
            value = None  # no NaN equals another
        found[field.name] = value
    return found
