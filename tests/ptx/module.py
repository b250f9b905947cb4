"""A PTX module as typed values: what `parse` makes of the text, and what everything else reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

# Bytes of one element, and how NumPy sees it. bf16 is carried as bits.
TYPES: dict[str, npt.DTypeLike] = {
    "b8": np.uint8,
    "u8": np.uint8,
    "s8": np.int8,
    "b16": np.uint16,
    "u16": np.uint16,
    "s16": np.int16,
    "f16": np.float16,
    "bf16": np.uint16,
    "b32": np.uint32,
    "u32": np.uint32,
    "s32": np.int32,
    "f32": np.float32,
    "f16x2": np.uint32,
    "bf16x2": np.uint32,
    "b64": np.uint64,
    "u64": np.uint64,
    "s64": np.int64,
    "f64": np.float64,
    "pred": np.bool_,
}


class PtxError(ValueError):
    """The text is not PTX that this emulator understands; the message names the line."""


def dtype_of(type_name: str) -> np.dtype[Any]:
    """NumPy's view of a PTX type."""
    return np.dtype(TYPES[type_name])


@dataclass(frozen=True, slots=True)
class Register:
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Special:
    """%tid.x, %laneid and others that the machine sets."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """An integer, or the bits of a floating-point constant of `float_bits` bits."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, or a label."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Negated:
    register: Register


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; without a base the offset is the address."""

    base: Register | Symbol | None
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    items: tuple[Register | Immediate | Special | None, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``: a value and a predicate; None is the sink ``_``."""

    first: Register | None
    second: Register | None


Operand = (
    Register | Special | Immediate | Symbol | Negated | Address | Vector | Pair | None
)  # None: the sink ``_``


@dataclass(frozen=True, slots=True)
class Guard:
    register: Register
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `line` counts from 1 in the PTX text, `source` is the ``.loc`` before it."""

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    text: str
    source: int | None = None

    @property
    def opcode(self) -> str:
        return self.parts[0]

    def has(self, *modifiers: str) -> bool:
        """Whether any of `modifiers` stands in the instruction."""
        return any(m in self.parts for m in modifiers)

    @property
    def type(self) -> str:
        """The last type in the instruction: that of its operands."""
        for part in reversed(self.parts):
            if part in TYPES:
                return part
        raise PtxError(f"line {self.line}: no type in {self.text!r}")

    def registers(self) -> list[Register]:
        """All registers that it names, as a reader or as a writer."""
        found: list[Register] = [self.guard.register] if self.guard else []
        for operand in self.operands:
            match operand:
                case Register():
                    found.append(operand)
                case Negated(register):
                    found.append(register)
                case Address(Register() as base, _):
                    found.append(base)
                case Vector(items):
                    found.extend(x for x in items if isinstance(x, Register))
                case Pair(first, second):
                    found.extend(x for x in (first, second) if x is not None)
                case _:
                    pass
        return found


@dataclass(frozen=True, slots=True)
class Variable:
    """A named piece of memory; `size` None: ``extern``, as large as the launch says."""

    name: str
    space: str
    align: int
    size: int | None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str


@dataclass(frozen=True)
class Kernel:
    """An entry: straight lines of instructions, and where its labels point."""

    name: str
    parameters: tuple[Parameter, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    registers: dict[str, str]
    variables: tuple[Variable, ...]
    max_threads: int | None = None

    @cached_property
    def loops(self) -> list[tuple[int, int]]:
        """[first, last] instruction of every loop: what a branch backwards spans."""
        spans = []
        for at, instruction in enumerate(self.instructions):
            target = instruction.operands[0] if instruction.opcode == "bra" else None
            if isinstance(target, Symbol) and self.labels[target.name] <= at:
                spans.append((self.labels[target.name], at))
        return spans

    def in_loop(self, index: int) -> bool:
        return any(first <= index <= last for first, last in self.loops)


@dataclass(frozen=True)
class Module:
    version: str
    target: str
    kernels: dict[str, Kernel] = field(default_factory=dict)

    @property
    def only(self) -> Kernel:
        """The one kernel of a module that has one."""
        (kernel,) = self.kernels.values()
        return kernel
