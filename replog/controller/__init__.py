"""Who is there, who leads, who is in sync: decided purely.

Nothing here reads a clock, draws chance, starts a thread or touches a file: `step(event, now_ms)`
returns effects. `ModelController` decides for a cluster and keeps all of it in memory;
`BrokerSession` is a broker's side of the conversation with it.
"""

from __future__ import annotations
