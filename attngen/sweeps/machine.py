"""Which machine measured, and how fast it is at most.

Output: a :class:`Fingerprint`: facts about machine and software, a digest over all of them, and one
over what makes two machines of a kind. Ratios are only ever taken within a kind. Names of hosts and
users are not in it, except as a digest that tells two machines of a kind apart.
"""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from typing import Any

from attngen import fingerprint
from attngen.backends.numba_cpu import threads
from attngen.backends.numba_cpu.probe import probe
from attngen.bench.environment import cpu_name, usable_cores, versions
from attngen.sweeps.points import Machine, physical_memory


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Where a result comes from.

    Attributes:
        cpu: the processor as its vendor calls it; `cores` that this process may use.
        isa, l1_bytes, l2_bytes, l3_bytes: of the target that code is generated for.
        memory: bytes of main memory.
        host: digest of the host's name.
    """

    cpu: str
    cores: int
    isa: str
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    memory: int
    system: str
    python: str
    versions: dict[str, str]
    threading_layer: str
    host: str

    @property
    def digest(self) -> str:
        """12 hexadecimal digits over everything."""
        return fingerprint.digest(self)[:12]

    @property
    def machine(self) -> str:
        """12 hexadecimal digits over what the kind of machine consists of."""
        kind = (self.cpu, self.cores, self.isa, self.l1_bytes, self.l2_bytes, self.l3_bytes)
        return fingerprint.digest((kind, platform.machine()))[:12]

    def to_json(self) -> dict[str, Any]:
        """Plain data, the kind of machine included."""
        return {"machine": self.machine, **asdict(self)}


def take_fingerprint() -> Fingerprint:
    """This process's machine and software; Numba's threads are started for it."""
    target = probe()
    threads.prepare()
    return Fingerprint(
        cpu=cpu_name(),
        cores=usable_cores(),
        isa=target.isa,
        l1_bytes=target.l1_bytes,
        l2_bytes=target.l2_bytes,
        l3_bytes=target.l3_bytes,
        memory=physical_memory(),
        system=platform.platform(),
        python=platform.python_version(),
        versions=versions(),
        threading_layer=threads.state().layer or "none",
        host=fingerprint.text_digest(platform.node())[:8],
    )


def load_average() -> float | None:
    """Processes that wanted to run, on average over the last minute; None where nobody counts."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def this_machine() -> Machine:
    """What points are judged by on this machine."""
    return Machine(probe(), usable_cores(), physical_memory())
