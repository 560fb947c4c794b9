"""The invariants of the protocol, each a small class that listens to what happens.

A checker defines the methods of `oracle.EVENTS` that it wants to hear, and raises Violation. They
look at the truth (`truth`) and at the disks, never at what the code under test believes.
"""

from __future__ import annotations
