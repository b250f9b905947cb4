"""Instructions made ready to run: each a step, and what the scheduler must know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptx import accesses, control, conversions, floats, integers, moves, tensor, warps, wgmma
from ptx.barriers import barrier_call
from ptx.lanes import Array, Bools
from ptx.machine import BUILDERS, Machine, Step, UnsupportedInstructionError
from ptx.module import Instruction, Register, Symbol, Vector

FAMILIES = (accesses, control, conversions, floats, integers, moves, tensor, warps, wgmma)
ALIGNED = ("mma", "ldmatrix", "stmatrix", "wgmma")
MEMBERS = ("shfl", "vote", "match", "redux")


@dataclass(slots=True)
class Operation:
    """An instruction made ready. What is not a plain step is special."""

    instruction: Instruction
    step: Step | None
    guard: Array | None
    negated: bool
    target: int = -1  # of a branch
    ends: bool = False
    barrier: tuple[bool, int, int | None] | None = None
    together: bool = False  # lanes must come together: the whole warp, or
    members: Array | None = None  # the lanes of this mask
    blocked: Callable[..., Bools] | None = None
    special: bool = False
    registers: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


def decode(machine: Machine) -> list[Operation]:
    return [
        operation_of(machine, instruction, index)
        for index, instruction in enumerate(machine.kernel.instructions)
    ]


def operation_of(machine: Machine, instruction: Instruction, index: int) -> Operation:
    guard = instruction.guard
    operation = Operation(
        instruction,
        None,
        machine.registers[guard.register.name] if guard else None,
        bool(guard and guard.negated),
    )
    opcode = instruction.opcode
    if opcode == "bra":
        label = instruction.operands[0]
        if not isinstance(label, Symbol) or label.name not in machine.kernel.labels:
            raise UnsupportedInstructionError(instruction)
        operation.target = machine.kernel.labels[label.name]
    elif opcode in ("ret", "exit"):
        operation.ends = True
    elif opcode in ("bar", "barrier") and not instruction.has("warp"):
        operation.barrier = barrier_call(instruction)
        operation.together = opcode == "bar" or instruction.has("aligned")
    elif opcode not in BUILDERS:
        raise UnsupportedInstructionError(instruction)
    else:
        operation.step = BUILDERS[opcode](machine, instruction, index)
        operation.blocked = machine.blockers.get(index)
        if opcode in ALIGNED:
            operation.together = True
        elif opcode in MEMBERS or opcode in ("bar", "barrier"):
            operation.together = True
            members = machine.source(instruction.operands[-1], "b32", instruction)
            if members.size > 1 or members[0] != 0xFFFF_FFFF:
                operation.members = members
    operation.special = operation.step is None or bool(operation.together or operation.blocked)
    operation.registers = frozenset(x.name for x in instruction.registers())
    if opcode not in ("st", "red", "wgmma", "stmatrix", "bar", "cp") and instruction.operands:
        first = instruction.operands[0]
        items = first.items if isinstance(first, Vector) else (first,)
        operation.writes = frozenset(x.name for x in items if isinstance(x, Register))
    return operation
