"""A deterministic simulator: production code on a virtual clock, network and disk, from one seed.

Everything that could differ between two runs is drawn from the seed, so a failure is repeated by
its seed alone. `run.simulate(seed)` plays one run; `scheduler`, `prng`, `network` and `disk` serve
the simulation of a user's own code as well.
"""

from __future__ import annotations
