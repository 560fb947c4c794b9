"""The controllers' quorum, decided purely: pull-based Raft on the metadata log (KIP-595, KIP-996).

`Quorum` is one member, voter or observer: `step(event, now_ms)` returns effects, to be carried out
in their order. It knows offsets and epochs of the log, never its bytes, and draws no chance itself.

What holds, as long as what was synced stays: at most one leader an epoch; an offset below a high
watermark holds the same record on whoever leads later. What it does not survive: a voter that
comes back with its disk wiped may vote, and vouch for offsets, a second time.
"""

from __future__ import annotations
