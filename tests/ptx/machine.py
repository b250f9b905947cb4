"""The state of one launch, and how instructions reach it.

Registers keep one fixed array of a value for each lane, so an instruction is built once as a
function over views of them (`Step`), and running it allocates next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ptx.lanes import Array, Bools, Clocks, Ints, Lanes, Mask
from ptx.memory import GlobalAccess, GlobalMemory
from ptx.module import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Negated,
    Operand,
    Pair,
    PtxError,
    Register,
    Special,
    Symbol,
    Vector,
    dtype_of,
)
from ptx.report import Report
from ptx.shadow import Shadow
from ptx.shared import FIRST, LocalMemory, SharedMemory, stride_of
from ptx.spaces import smallest_access, spaces

Step = Callable[[Mask], None]
Builder = Callable[["Machine", Instruction, int], Step]
Source = Callable[[], Array]

BUILDERS: dict[str, Builder] = {}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class UnsupportedInstructionError(PtxError):
    """An instruction, or a form of one, that this emulator does not know."""

    def __init__(self, instruction: Instruction, why: str = "") -> None:
        super().__init__(f"PTX line {instruction.line}: not emulated: {instruction.text}" + why)


def builds(*opcodes: str) -> Callable[[Builder], Builder]:
    """The decorated function builds the steps of these opcodes."""

    def register(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(opcodes, builder))
        return builder

    return register


@dataclass
class Asynchronous:
    """Work in flight; see `copies` and `wgmma`, which own the parts."""

    copies: list[Any] = field(default_factory=list)
    groups: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # committed, by lane
    products: list[Any] = field(default_factory=list)
    product_groups: Array = field(default_factory=lambda: np.zeros(0, np.int64))


class Machine:
    def __init__(
        self,
        kernel: Kernel,
        lanes: Lanes,
        memory: GlobalMemory,
        arguments: dict[str, Array],
        dynamic_shared: int,
        noise: float,
    ) -> None:
        self.kernel, self.lanes, self.arguments, self.noise = kernel, lanes, arguments, noise
        self.dynamic_shared = dynamic_shared
        self.report, self.clocks = Report(kernel), Clocks(lanes)
        self.symbols: dict[str, int] = {}
        shared, local = self._lay_out(memory)
        granule = smallest_access(kernel)
        blocks = stride_of(shared) * lanes.blocks
        shadow = Shadow(self.report, self.clocks, blocks, granule, lanes.warps_per_block)
        self.shared = SharedMemory(self.report, shadow, shared)
        self.local = LocalMemory(self.report, lanes, local)
        whole = Shadow(self.report, self.clocks, memory.used, 1, 0)
        self.memory = GlobalAccess(memory, self.report, whole)
        self.registers = {
            name: np.full(lanes.count, 0xA5, np.uint8)
            if width == 1
            else np.full(lanes.count, int("A5" * width, 16), UNSIGNED[width])
            for name, type_name in kernel.registers.items()
            for width in [dtype_of(type_name).itemsize]
        }
        for name, type_name in kernel.registers.items():
            if type_name == "pred":
                self.registers[name] = np.zeros(lanes.count, np.bool_)
        self.exited = ~lanes.exists
        self.blockers: dict[int, Callable[[Ints], Bools]] = {}  # instructions that may hold lanes
        self.phases: Any = None  # `mbarriers.PhaseBarriers`, once there is an mbarrier
        self.changed_registers: set[str] = set()  # since the last wgmma.fence
        self.released: dict[int, Array] = {}  # by address: what atomics there have released
        self.asynchronous = Asynchronous(
            groups=np.zeros(lanes.count, np.int64), product_groups=np.zeros(lanes.count, np.int64)
        )

    def _lay_out(self, memory: GlobalMemory) -> tuple[int, int]:
        """Give variables their addresses; bytes of shared and of local memory."""
        top = {"shared": 0, "local": 0}
        externs = []
        for item in self.kernel.variables:
            if item.space in ("global", "const"):
                data = item.data or bytes(item.size or 0)
                placed = memory.place(np.frombuffer(data, np.uint8), align=max(item.align, 16))
                self.symbols[item.name] = placed.address
            elif item.size is None:
                externs.append(item)
            else:
                at = -(-top[item.space] // item.align) * item.align
                top[item.space] = at + item.size
                self.symbols[item.name] = at + (FIRST if item.space == "shared" else 0)
        align = max([x.align for x in externs], default=16)
        dynamic = -(-top["shared"] // align) * align
        self.symbols.update({x.name: FIRST + dynamic for x in externs})
        return dynamic + self.dynamic_shared, top["local"]

    # Operands -----------------------------------------------------------------------------------

    def source(self, operand: Operand, type_name: str, instruction: Instruction) -> Array:
        """A view of `operand` as `type_name`: one value for each lane, or one for all.

        A narrower type than a register's is its low part; a wider one is an error of the text.
        """
        dtype = dtype_of(type_name)
        match operand:
            case Register(name, declared):
                if (declared == "pred") != (type_name == "pred"):
                    raise UnsupportedInstructionError(instruction, ": predicate and number")
                return self._view(self.registers[name], dtype, instruction)
            case Immediate(value, float_bits):
                if float_bits:
                    bits = UNSIGNED[float_bits // 8]
                    number = np.array([value], bits)
                    if dtype.kind != "f":
                        return number.view(dtype)
                    return number.view(np.dtype(f"f{float_bits // 8}")).astype(dtype)
                if dtype.kind == "b":
                    return np.array([bool(value)])
                width = dtype.itemsize
                bits = UNSIGNED[width]
                return np.array([value & ((1 << 8 * width) - 1)], bits).view(dtype)
            case Special(name):
                return self._view(self.special(name, instruction), dtype, instruction)
            case Symbol(name, offset) if name in self.symbols:
                value = self.symbols[name] + offset
                return np.array([value], np.uint64).astype(UNSIGNED[dtype.itemsize]).view(dtype)
            case _:
                raise UnsupportedInstructionError(instruction, f": operand {operand}")

    def _view(self, values: Array, dtype: np.dtype[Any], instruction: Instruction) -> Array:
        have, want = values.dtype.itemsize, dtype.itemsize
        if have < want:
            raise UnsupportedInstructionError(instruction, ": a register is too narrow")
        return values.view(dtype)[:: have // want]

    def special(self, name: str, instruction: Instruction) -> Array:
        if name == "%dynamic_smem_size":
            return np.full(self.lanes.count, self.dynamic_shared, np.uint32)
        if name == "%total_smem_size":
            return np.full(self.lanes.count, self.shared.size, np.uint32)
        try:
            return self.lanes.special(name)
        except KeyError:
            raise UnsupportedInstructionError(instruction, f": {name}") from None

    def predicate(self, operand: Operand, instruction: Instruction) -> Source:
        match operand:
            case Negated(register):
                negated = self.registers[register.name]
                return lambda: ~negated
            case _:
                view = self.source(operand, "pred", instruction)
                return lambda: view

    def target(self, operand: Operand, type_name: str, instruction: Instruction) -> Array:
        """The array to write: of `type_name`'s kind, as wide as the register.

        Copying narrower integers into it extends them by their sign.
        """
        dtype = dtype_of(type_name)
        match operand:
            case None:
                return np.empty(self.lanes.count, dtype)
            case Register(name, declared):
                values = self.registers[name]
                if (declared == "pred") != (type_name == "pred"):
                    raise UnsupportedInstructionError(instruction, ": predicate and number")
                if values.dtype.itemsize < dtype.itemsize:
                    raise UnsupportedInstructionError(instruction, ": a register is too narrow")
                if values.dtype.itemsize == dtype.itemsize:
                    return values.view(dtype)
                kind = dtype.kind if dtype.kind in "iu" else "u"
                return values.view(np.dtype(f"{kind}{values.dtype.itemsize}"))
            case _:
                raise UnsupportedInstructionError(instruction, f": cannot write {operand}")

    def vector(self, operand: Operand) -> tuple[Operand, ...]:
        return operand.items if isinstance(operand, Vector) else (operand,)

    def addresses(self, operand: Operand, instruction: Instruction) -> Callable[[Ints], Ints]:
        """Addresses of the given lanes, as int64."""
        if not isinstance(operand, Address):
            raise UnsupportedInstructionError(instruction, f": address {operand}")
        offset = operand.offset
        match operand.base:
            case Register(name, _):
                base = self.registers[name]
                return lambda lanes: base[lanes].astype(np.int64) + offset
            case Symbol(name, more) if name in self.symbols:
                fixed = self.symbols[name] + more + offset
            case None:
                fixed = offset
            case _:
                raise UnsupportedInstructionError(instruction, f": address {operand}")
        return lambda lanes: np.full(lanes.size, fixed, np.int64)

    # Memory -------------------------------------------------------------------------------------

    def load(self, space: str, index: int, lanes: Ints, addresses: Ints, size: int) -> Array:
        """(k, size) bytes from one space, or (``""``) from wherever a generic address points."""
        if space in ("global", "const"):
            return self.memory.load(index, lanes, addresses, size)
        if space == "shared":
            return self.shared.load(index, lanes, addresses, size)
        if space == "local":
            return self.local.load(index, lanes, addresses, size)
        values = np.empty((lanes.size, size), np.uint8)
        for name, start, which in spaces(addresses):
            values[which] = self.load(name, index, lanes[which], addresses[which] - start, size)
        return values

    def store(self, space: str, index: int, lanes: Ints, addresses: Ints, values: Array) -> None:
        if space == "global":
            self.memory.store(index, lanes, addresses, values)
        elif space == "shared":
            self.shared.store(index, lanes, addresses, values)
        elif space == "local":
            self.local.store(index, lanes, addresses, values)
        else:
            for name, start, which in spaces(addresses):
                self.store(name, index, lanes[which], addresses[which] - start, values[which])

    def atomic(
        self,
        space: str,
        index: int,
        lanes: Ints,
        addresses: Ints,
        function: Callable[..., Array],
        values: list[Array],
    ) -> Array:
        """Replace the value there by function(value, *values); what was there."""
        dtype = values[0].dtype
        memory = self.shared if space == "shared" else self.memory
        old = memory.load(index, lanes, addresses, dtype.itemsize, atomic=True).view(dtype)[:, 0]
        new = np.asarray(function(old, *values), dtype).reshape(-1, 1)
        memory.store(index, lanes, addresses, new.view(np.uint8), atomic=True)
        return old


def second_target(operand: Operand) -> tuple[Operand, Operand]:
    """(d, p) of ``d|p``; p is None without one."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)
