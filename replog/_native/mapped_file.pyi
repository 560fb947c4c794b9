from typing import Final

from replog._native.file_replacement import (
    replace_file as replace_file,
)
from replog._native.file_replacement import (
    replace_files as replace_files,
)
from replog._native.file_system import (
    FileLock as FileLock,
)
from replog._native.file_system import (
    OfflineFile as OfflineFile,
)
from replog._native.file_system import (
    fsync_dir as fsync_dir,
)
from replog._native.file_system import (
    list_dir as list_dir,
)
from replog._native.file_system import (
    make_dir as make_dir,
)
from replog._native.file_system import (
    read_file as read_file,
)
from replog._native.file_system import (
    remove as remove,
)
from replog._native.file_system import (
    remove_dir as remove_dir,
)
from replog._native.file_system import (
    rename as rename,
)

DESCRIPTORS_MAX: Final = 2048
MAPPINGS_MAX: Final = 4096

class Mapping: ...

class MappedFile:
    path: str
    writable: bool
    failed: bool
    closed: bool
    size_bytes: int
    modified_ms: int
    def __init__(self, path: str, *, writable: bool = False, create: bool = False) -> None: ...
    def append_bytes(self, content: bytes | bytearray | memoryview) -> None: ...
    def view(self, position: int, length_bytes: int) -> FileView: ...
    def pinned_past(self, position: int) -> bool: ...
    def flush(self) -> int: ...
    def truncate(self, size_bytes: int) -> int: ...
    def rename_to(self, path: str) -> int: ...
    def close(self) -> int: ...

class FileView:
    position: int
    length_bytes: int
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def limit_descriptors(count: int) -> int: ...
def limit_mappings(count: int) -> int: ...
def open_descriptor_count() -> int: ...
def mapping_count() -> int: ...
