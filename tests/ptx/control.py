"""Instructions that change no value: hints, and the trap that compilers put where none may come."""

from __future__ import annotations

from ptx.lanes import Mask
from ptx.machine import Machine, Step, builds
from ptx.module import Instruction
from ptx.report import Kind


@builds("nanosleep", "griddepcontrol", "setmaxnreg", "prefetch", "prefetchu", "pmevent")
def build_hint(*_: object) -> Step:
    return nothing


def nothing(_: Mask) -> None:
    """What a hint does to values."""


@builds("trap", "brkpt")
def build_trap(machine: Machine, _: Instruction, index: int) -> Step:
    def step(mask: Mask) -> None:
        lanes = machine.lanes.active(mask)
        detail = f"reached by {machine.lanes.where(int(lanes[0]))}"
        machine.report.add(Kind.TRAP, index, detail, int(lanes.size))

    return step
