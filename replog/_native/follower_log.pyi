from typing_extensions import Buffer

from replog._native.append_result import AppendResult
from replog._native.appendable_log import AppendableLog

class FollowerLog(AppendableLog):
    def append_as_follower(self, batches: Buffer, *, now_ms: int | None = None) -> AppendResult: ...
