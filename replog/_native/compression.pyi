from typing_extensions import Buffer

XERIAL_MAGIC: bytes
XERIAL_HEADER: bytes
LZ4_MAGIC: bytes
LZ4_HEADER: bytes
LZ4_END_MARK: bytes
CODEC_NAMES: tuple[str, ...]

def compress(codec: int, payload: Buffer, level: int | None = None) -> Buffer: ...
def decompress(codec: int, payload: Buffer, output_bytes_max: int) -> Buffer: ...
def refused_by_java(codec: int, payload: Buffer) -> str | None: ...
