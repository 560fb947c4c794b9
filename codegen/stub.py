"""Writes the `.pyi` of a schema's module: the face that Python and its type checkers see."""

from __future__ import annotations

from codegen.schema_table import INTEGERS, NO_VERSIONS, Field, Module, Struct

PYTHON_TYPES = dict.fromkeys(INTEGERS, "int") | {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "Buffer",
    "uuid": "bytes",
}
LINE_WIDTH = 100


def write_stub(module: Module) -> str:
    """The text of the `.pyi`, laid out as ruff would."""
    structs = [*reversed(module.structs), *module.messages]
    imports = ["from typing import Final"]
    if any(field.kind == "records" for struct in structs for field in struct.fields):
        imports += ["", "from typing_extensions import Buffer"]
    imports += ["", "from replog._native.message_cursor import Message"]
    parts = ["\n".join(imports), *map(_class, structs)]
    parts.append("MESSAGES: Final[dict[int, type[Message]]]")
    return "\n\n".join(parts) + "\n"


def _class(struct: Struct) -> str:
    lines = [f"class {struct.name}(Message):"]
    lines += [f"    {field.name}: {_type(field)}" for field in struct.fields]
    arguments = [f"{field.name}: {_type(field)} = ..." for field in struct.fields]
    if not arguments:
        return f"class {struct.name}(Message): ..."
    one_line = f"    def __init__(self, *, {', '.join(arguments)}) -> None: ..."
    if len(one_line) <= LINE_WIDTH:
        return "\n".join([*lines, one_line])
    lines += ["    def __init__(", "        self,", "        *,"]
    lines += [f"        {argument}," for argument in arguments]
    return "\n".join([*lines, "    ) -> None: ..."])


def _type(field: Field) -> str:
    kind = field.struct.name if field.struct is not None else PYTHON_TYPES[field.kind]
    if field.array:
        kind = f"tuple[{kind}, ...]"
    nullable = field.nullable is not NO_VERSIONS or field.kind == "records"
    return f"{kind} | None" if nullable else kind
