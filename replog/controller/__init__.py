"""Who is there, who leads, who is in sync: decided purely.

Nothing here reads a clock, draws chance, starts a thread or touches a file: `step(event, now_ms)`
returns effects. `Controller` decides for a cluster by records of its metadata log;
`BrokerSession` is a broker's side of the conversation with it.
"""

from __future__ import annotations
