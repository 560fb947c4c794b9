"""Writes the Cython module of a schema: a class per message and struct, made of message_cursor."""

from __future__ import annotations

from codegen.schema_table import (
    INTEGERS,
    NO_VERSIONS,
    VERSION_MAX,
    ZERO_UUID,
    Field,
    Module,
    Struct,
    Versions,
    field_bytes_min,
)

C_TYPES = {name: f"{name}_t" for name in INTEGERS} | {"bool": "bint", "float64": "double"}
OBJECT_TYPES = {"string": "str", "bytes": "bytes", "records": "object", "uuid": "bytes"}
CALLS = {"bool": "boolean", "bytes": "byte_string"}
NULLABLE_KINDS = {"string", "bytes", "records"}

_HEAD = '''\
# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Generated from {name}.schema by codegen; change that, not this."""

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
)

from replog._native.message_cursor cimport (
    Message, MessageReader, MessageWriter, check_version, read_whole, refuse_field, refuse_null,
    uuid_text,
)

import base64

cdef bytes ZERO_UUID = bytes(16)
'''


def write_module(module: Module) -> str:
    """The text of the `.pyx`."""
    structs = [*reversed(module.structs), *module.messages]
    parts = [_HEAD.format(name=module.name)]
    parts += [f"cdef class {struct.name}(Message)" for struct in structs]
    parts += ["", *(_class(struct) for struct in structs)]
    kinds = ", ".join(f"{message.api}: {message.name}" for message in module.messages)
    parts.append(f"\nMESSAGES = {{{kinds}}}\n")
    return "\n".join(parts)


def _class(struct: Struct) -> str:
    lines = [f"cdef class {struct.name}(Message):"]
    lines += [f"    cdef readonly {_c_type(field)} {field.name}" for field in struct.fields]
    lines += [
        "",
        f"    API_KEY = {struct.api}",
        f"    LOWEST_VERSION = {struct.versions.low}",
        f"    HIGHEST_VERSION = {struct.versions.high}",
        "",
        *_init(struct),
        *_read(struct),
        *_write(struct),
        *_json(struct),
        "    cdef tuple field_names(self):",
        f"        return ({''.join(repr(field.name) + ', ' for field in struct.fields)})",
        "",
        "    cdef tuple field_values(self):",
        f"        return ({''.join(f'self.{field.name}, ' for field in struct.fields)})",
        "",
    ]
    return "\n".join([*lines, ""])


def _c_type(field: Field) -> str:
    if field.array:
        return "tuple"
    if field.struct is not None:
        return field.struct.name
    return C_TYPES.get(field.kind) or OBJECT_TYPES[field.kind]


def _default(field: Field) -> str:
    if field.default == ZERO_UUID:
        return "ZERO_UUID"
    return repr(field.default)


def _fresh(field: Field) -> str:
    """What a field is where it is not given: a struct that may not be null is all defaults."""
    if field.struct is not None and not field.array and field.nullable is NO_VERSIONS:
        return f"{field.struct.name}()"
    return _default(field)


def _init(struct: Struct) -> list[str]:
    lines = ["    def __init__(", "        self,"]
    if struct.fields:
        lines.append("        *,")
    for field in struct.fields:
        kind = _c_type(field)
        may_be_none = (
            field.nullable is not NO_VERSIONS or kind in C_TYPES.values() or kind == "object"
        )
        if field.struct is not None and not field.array:
            lines.append(f"        {kind} {field.name}=None,")
            continue
        guard = "" if may_be_none else " not None"
        lines.append(f"        {kind} {field.name}{guard}={_default(field)},")
    lines.append("    ):")
    for field in struct.fields:
        value = field.name
        if _fresh(field) != _default(field):
            value = f"{_fresh(field)} if {field.name} is None else {field.name}"
        lines.append(f"        self.{field.name} = {value}")
    if not struct.fields:
        lines.append("        pass")
    return [*lines, ""]


def _condition(versions: Versions, of: Versions) -> str | None:
    """When the message's version is in `versions`, given that it is in `of`; None for always."""
    low = f"version >= {versions.low}" if versions.low > of.low else ""
    high = f"version <= {versions.high}" if versions.high < min(of.high, VERSION_MAX) else ""
    return " and ".join(filter(None, (low, high))) or None


def _flag(versions: Versions, of: Versions) -> str:
    """Likewise as an expression, where the versions may be none at all."""
    if versions is NO_VERSIONS or versions.low > versions.high:
        return "False"
    return _condition(versions, of) or "True"


def _indented(lines: list[str], by: int = 1) -> list[str]:
    return ["    " * by + line for line in lines]


def _guarded(condition: str | None, lines: list[str], otherwise: list[str]) -> list[str]:
    if condition is None:
        return lines
    block = [f"if {condition}:", *_indented(lines)]
    return [*block, "else:", *_indented(otherwise)] if otherwise else block


# Reading


def _read(struct: Struct) -> list[str]:
    flexible = _flag(struct.flexible.cut(struct.versions), struct.versions)
    body = [f"cdef bint flexible = {flexible}", "cdef Py_ssize_t count, place"]
    body += ["cdef tuple gathered", "cdef object element"]
    body += ["cdef uint32_t tag, tags", "cdef const uint8_t* tag_end"]
    for field in struct.plain:
        body += _guarded(
            _condition(field.versions, struct.versions),
            _read_field(field),
            [f"self.{field.name} = {_fresh(field)}"],
        )
    body += [f"self.{field.name} = {_fresh(field)}" for field in struct.tagged]
    if flexible != "False":
        body += _guarded(None if flexible == "True" else "flexible", _read_tags(struct), [])
    body.append("return 0")
    head = "    cdef int read_fields(self, MessageReader reader, int version) except -1:"
    return [head, *_indented(body, 2), ""]


def _read_tags(struct: Struct) -> list[str]:
    if not struct.tagged:
        return ["reader.skip_tags()"]
    lines = ["tags = reader.uvarint()", "while tags:"]
    body = ["tags -= 1", "tag = reader.uvarint()", "tag_end = reader.tag_end()"]
    for place, field in enumerate(struct.tagged):
        condition = _condition(field.versions, struct.versions)
        test = f"tag == {field.tag}" + (f" and {condition}" if condition else "")
        body.append(f"{'elif' if place else 'if'} {test}:")
        body += _indented([*_read_field(field), "reader.leave_tag(tag_end)"])
    body += ["else:", "    reader.skip_tag(tag_end)"]
    return [*lines, *_indented(body)]


def _read_field(field: Field) -> list[str]:
    nullable = _flag(field.nullable, field.versions)
    target = f"self.{field.name}"
    if not field.array:
        if field.struct is not None and nullable != "False":
            present = (
                "reader.present()"
                if nullable == "True"
                else f"not ({nullable}) or reader.present()"
            )
            return [f"{target} = None", f"if {present}:", f"    {target} = {_read_one(field)}"]
        return [f"{target} = {_read_one(field, nullable)}"]
    smallest = field_bytes_min(field, element=True)
    return [
        f"count = reader.array_length(flexible, {nullable}, {smallest})",
        "if count < 0:",
        f"    {target} = None",
        "elif count == 0:",
        f"    {target} = ()",
        "else:",
        "    gathered = PyTuple_New(count)",
        "    for place in range(count):",
        f"        element = {_read_one(field)}",
        "        Py_INCREF(element)",
        "        PyTuple_SET_ITEM(gathered, place, element)",
        f"    {target} = gathered",
    ]


def _read_one(field: Field, nullable: str = "False") -> str:
    if field.struct is not None:
        return f"<{field.struct.name}> read_whole({field.struct.name}, reader, version)"
    call = CALLS.get(field.kind, field.kind)
    arguments = f"flexible, {nullable}" if field.kind in NULLABLE_KINDS else ""
    return f"reader.{call}({arguments})"


# Writing


def _write(struct: Struct) -> list[str]:
    flexible = _flag(struct.flexible.cut(struct.versions), struct.versions)
    body = [
        f"cdef bint flexible = {flexible}",
        "cdef MessageWriter content",
        "cdef uint32_t tags = 0",
    ]
    for field in struct.plain:
        refusal = [] if field.ignorable else _refusal(field)
        body += _guarded(
            _condition(field.versions, struct.versions),
            _write_field(field, "writer"),
            refusal,
        )
    for field in struct.tagged:
        condition = _condition(field.versions, struct.versions)
        if condition is not None and not field.ignorable:
            body += [f"if not ({condition}) and {_differs(field)}:"]
            body += _indented(_refuse(field))
    if flexible != "False":
        body += _guarded(None if flexible == "True" else "flexible", _write_tags(struct), [])
    body.append("return 0")
    head = "    cdef int write_fields(self, MessageWriter writer, int version) except -1:"
    return [head, *_indented(body, 2), ""]


def _write_tags(struct: Struct) -> list[str]:
    lines = []
    tests = []
    for field in struct.tagged:
        condition = _condition(field.versions, struct.versions)
        test = _differs(field) if condition is None else f"{condition} and {_differs(field)}"
        tests.append(test)
        lines += [f"if {test}:", "    tags += 1"]
    lines.append("writer.uvarint(tags)")
    for field, test in zip(struct.tagged, tests, strict=True):
        lines += [f"if {test}:", "    content = MessageWriter()"]
        lines += _indented(_write_field(field, "content"))
        lines.append(f"    writer.tag({field.tag}, content)")
    return lines


def _differs(field: Field) -> str:
    """Whether a field is not at its default."""
    if field.default is None:
        return f"self.{field.name} is not None"
    return f"self.{field.name} != {_default(field)}"


def _refuse(field: Field) -> list[str]:
    return [f'refuse_field(self, "{field.name}", version)']


def _refusal(field: Field) -> list[str]:
    if field.struct is not None and not field.array and field.nullable is NO_VERSIONS:
        return [f"if self.{field.name} != {field.struct.name}():", *_indented(_refuse(field))]
    return [f"if {_differs(field)}:", *_indented(_refuse(field))]


def _write_field(field: Field, writer: str) -> list[str]:
    nullable = _flag(field.nullable, field.versions)
    name = f"self.{field.name}"
    lines = []
    if _can_be_none(field) and nullable != "True":
        test = f"{name} is None" if nullable == "False" else f"{name} is None and not ({nullable})"
        lines += [f"if {test}:", f'    refuse_null(self, "{field.name}")']
    if field.array:
        each = _indented(_write_one(field, "element", writer))
        loop = [
            f"{writer}.array_length({name}, flexible)",
            f"for element in {name}:",
            *each,
        ]
        if nullable == "False":
            return lines + loop
        null = [f"if {name} is None:", f"    {writer}.null_array(flexible)"]
        return [*lines, *null, "else:", *_indented(loop)]
    if field.struct is not None and nullable != "False":
        mark = [f"{writer}.int8(-1 if {name} is None else 1)"]
        lines += _guarded(None if nullable == "True" else nullable, mark, [])
        return [*lines, f"if {name} is not None:", *_indented(_write_one(field, name, writer))]
    return lines + _write_one(field, name, writer)


def _can_be_none(field: Field) -> bool:
    return field.array or field.kind in OBJECT_TYPES or field.struct is not None


def _write_one(field: Field, value: str, writer: str) -> list[str]:
    if field.struct is not None:
        return [f"(<{field.struct.name}?> {value}).write_fields({writer}, version)"]
    call = CALLS.get(field.kind, field.kind)
    if field.kind == "records":
        call = "byte_string"
    if field.kind in NULLABLE_KINDS:
        checked = f"<str?> {value}" if field.kind == "string" and value == "element" else value
        return [f"{writer}.{call}({checked}, flexible)"]
    checked = f"<bytes?> {value}" if field.kind == "uuid" and value == "element" else value
    return [f"{writer}.{call}({checked})"]


# JSON


def _json(struct: Struct) -> list[str]:
    body = ["cdef dict fields = {}"]
    for field in struct.fields:
        test = _condition(field.versions, struct.versions)
        if field.tag is not None:
            differs = _differs(field)
            test = differs if test is None else f"{test} and {differs}"
        body += _guarded(test, [f'fields["{field.json_name}"] = {_json_value(field)}'], [])
    body.append("return fields")
    return ["    cdef dict fields_as_json(self, int version):", *_indented(body, 2), ""]


def _json_value(field: Field) -> str:
    name = f"self.{field.name}"
    if field.array:
        one = _json_one(field, "element")
        value = f"list({name})" if one == "element" else f"[{one} for element in {name}]"
    else:
        value = _json_one(field, name)
    if value == name or (field.nullable is NO_VERSIONS and field.kind != "records"):
        return value
    return f"None if {name} is None else {value}"


def _json_one(field: Field, value: str) -> str:
    if field.struct is not None:
        return f"(<{field.struct.name}> {value}).fields_as_json(version)"
    if field.kind == "uuid":
        return f"uuid_text({value})"
    if field.kind == "bytes":
        return f"base64.b64encode({value}).decode()"
    if field.kind == "records":
        return f"len({value})"
    return value
