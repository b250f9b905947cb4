"""State spaces: what an opcode names, and where generic addresses point."""

from __future__ import annotations

from typing import Any

from ptx.lanes import Ints
from ptx.module import Instruction, Kernel, dtype_of

SHARED_WINDOW = 0x0100_0000_0000  # generic addresses of shared memory begin here
LOCAL_WINDOW = 0x0200_0000_0000
WINDOW_SIZE = 1 << 32


def spaces(addresses: Ints) -> list[tuple[str, int, Any]]:
    """(space, start of its window, which of the generic addresses point there)."""
    shared = (addresses >= SHARED_WINDOW) & (addresses < SHARED_WINDOW + WINDOW_SIZE)
    local = (addresses >= LOCAL_WINDOW) & (addresses < LOCAL_WINDOW + WINDOW_SIZE)
    found = [
        ("shared", SHARED_WINDOW, shared),
        ("local", LOCAL_WINDOW, local),
        ("global", 0, ~(shared | local)),
    ]
    return [x for x in found if x[2].any()]


def space_of(instruction: Instruction) -> str:
    """The state space in an opcode, without ``::cta``; ``""`` if addresses are generic."""
    for part in instruction.parts[1:]:
        name = part.partition("::")[0]
        if name in ("global", "shared", "local", "const", "param"):
            return name
    return ""


def smallest_access(kernel: Kernel) -> int:
    """Bytes of the narrowest access to shared memory: none is in need of finer bookkeeping."""
    smallest = 16
    for instruction in kernel.instructions:
        if instruction.opcode in ("ld", "st", "atom", "red", "ldu"):
            if space_of(instruction) in ("", "shared"):
                smallest = min(smallest, dtype_of(instruction.type).itemsize)
        elif instruction.opcode in ("cp", "mbarrier"):
            smallest = min(smallest, 4)
    return smallest
