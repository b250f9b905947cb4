"""Keeping a process on as many cores as it has threads.

Nothing but the standard library is imported: threads that NumPy starts when it is imported stay on
the cores that the process has by then.
"""

from __future__ import annotations

import os


def pin_to_cores(count: int) -> tuple[int, ...]:
    """Keep this process on `count` cores, different ones before siblings; which they are.

    Nothing happens, and nothing is given, on systems without affinity or with fewer cores.
    """
    if not hasattr(os, "sched_setaffinity"):
        return ()
    cores = _cores_apart()
    if count > len(cores):
        return ()
    chosen = cores[:count]
    os.sched_setaffinity(0, chosen)
    return tuple(chosen)


def _cores_apart() -> list[int]:
    """The usable logical cores: one of each physical core first, then their siblings."""
    first: list[int] = []
    siblings: list[int] = []
    seen: set[str] = set()
    for core in sorted(os.sched_getaffinity(0)):
        path = f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        try:
            with open(path, encoding="ascii") as file:
                physical = file.read().strip()
        except OSError:
            physical = str(core)
        (siblings if physical in seen else first).append(core)
        seen.add(physical)
    return first + siblings
