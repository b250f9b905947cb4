"""Tensor cores of sm_80: mma.sync, and ldmatrix and stmatrix that feed it.

How a warp holds a matrix follows the figures of the PTX ISA, "Warp-level matrix instructions".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ptx.lanes import WARP, Array, Ints, Mask
from ptx.machine import Machine, Step, UnsupportedInstructionError, builds
from ptx.module import Instruction, Operand
from ptx.numbers import from_bfloat16

LANE = np.arange(WARP)


@dataclass(frozen=True, eq=False)
class Fragment:
    """Which element of a matrix lane l holds in its e-th place: (32, elements) each."""

    rows: Ints
    columns: Ints

    def matrix(self, held: Array, shape: tuple[int, int]) -> Array:
        """(warps, 32, elements) to (warps, *shape)."""
        whole = np.empty((held.shape[0], *shape), held.dtype)
        whole[:, self.rows, self.columns] = held
        return whole

    def held(self, matrix: Array) -> Array:
        """(warps, rows, columns) to (warps, 32, elements)."""
        part: Array = matrix[:, self.rows, self.columns]
        return part


def operand_a(k: int, per: int) -> Fragment:
    """16 × k, `per` elements in a 32-bit register."""
    e = np.arange(16 * k // WARP)
    register, part = e // per, e % per
    rows = (LANE // 4)[:, None] + 8 * (register & 1)
    columns = (LANE % 4 * per)[:, None] + part + (register >> 1) * 4 * per
    return Fragment(rows, columns)


def operand_b(k: int, per: int) -> Fragment:
    """k × 8, column by column."""
    e = np.arange(8 * k // WARP)
    register, part = e // per, e % per
    rows = (LANE % 4 * per)[:, None] + part + register * 4 * per
    return Fragment(rows, np.broadcast_to((LANE // 4)[:, None], rows.shape))


def accumulator(columns: int = 8) -> Fragment:
    """16 × columns of 32 bits, or of pairs of 16 bits."""
    e = np.arange(16 * columns // WARP)
    rows = (LANE // 4)[:, None] + 8 * (e >> 1 & 1)
    return Fragment(rows, (LANE % 4 * 2)[:, None] + (e & 1) + 8 * (e >> 2))


Decode = Callable[[Array], Array]
DECODE: dict[str, tuple[int, Decode]] = {  # elements in 32 bits, and their values
    "f16": (2, lambda bits: bits.view(np.float16).astype(np.float32)),
    "bf16": (2, lambda bits: from_bfloat16(bits.view(np.uint16))),
    "tf32": (1, lambda bits: (bits & np.uint32(0xFFFF_E000)).view(np.float32)),
    "s8": (4, lambda bits: bits.view(np.int8).astype(np.int32)),
    "u8": (4, lambda bits: bits.view(np.uint8).astype(np.int32)),
}


def gathered(sources: list[Array], lanes: int) -> Array:
    """(warps, 32, registers)."""
    stacked = np.empty((lanes, len(sources)), sources[0].dtype)
    for column, source in enumerate(sources):
        stacked[:, column] = source
    return stacked.reshape(-1, WARP, len(sources))


@builds("mma")
def build_mma(machine: Machine, instruction: Instruction, _: int) -> Step:
    parts = instruction.parts
    shape = re.fullmatch(r"m16n8k(\d+)", next((x for x in parts if x.startswith("m16")), ""))
    types = [x for x in parts if x in (*DECODE, "f32", "s32")]
    if shape is None or len(types) != 4 or instruction.has("satfinite") or types[0] != types[3]:
        raise UnsupportedInstructionError(instruction)
    if types[1] not in DECODE or types[2] not in DECODE or types[0] not in ("f32", "f16", "s32"):
        raise UnsupportedInstructionError(instruction)
    k, result = int(shape[1]), types[0]
    per, decode_a = DECODE[types[1]]
    _, decode_b = DECODE[types[2]]
    wide = {"f32": "f32", "f16": "b32", "s32": "s32"}[result]
    operands: list[tuple[Operand, ...]] = [machine.vector(x) for x in instruction.operands]
    counts = (4 if wide != "b32" else 2, 16 * k // WARP // per, 8 * k // WARP // per)
    if [len(x) for x in operands] != [counts[0], counts[1], counts[2], counts[0]]:
        raise UnsupportedInstructionError(instruction)
    targets = [machine.target(x, wide, instruction) for x in operands[0]]
    a, b = ([machine.source(x, "b32", instruction) for x in v] for v in operands[1:3])
    c = [machine.source(x, wide, instruction) for x in operands[3]]
    place_a, place_b, place_c = operand_a(k, per), operand_b(k, per), accumulator()
    lanes = machine.lanes.count

    def step(mask: Mask) -> None:
        left = place_a.matrix(decode_a(gathered(a, lanes)), (16, k))
        right = place_b.matrix(decode_b(gathered(b, lanes)), (k, 8))
        held = gathered(c, lanes)
        if result == "f16":
            held = held.view(np.float16).astype(np.float32)
        total = np.matmul(left, right) + place_c.matrix(held, (16, 8))
        parts = place_c.held(total)
        if result == "f16":
            parts = parts.astype(np.float16).view(np.uint32)
        flat = parts.reshape(lanes, -1)
        for column, target in enumerate(targets):
            np.copyto(target, flat[:, column], where=mask)

    return step


def matrices(instruction: Instruction) -> int:
    count = next((x for x in instruction.parts if re.fullmatch(r"x[124]", x)), None)
    if count is None or not instruction.has("m8n8") or not instruction.has("b16"):
        raise UnsupportedInstructionError(instruction)
    return int(count[1:])


def row_lanes(machine: Machine, mask: Mask, count: int) -> Ints:
    """Lanes 8m to 8m + 7 of every active warp give the addresses of matrix m's rows."""
    lanes = machine.lanes.active(mask)
    return lanes[machine.lanes.in_warp[lanes] < 8 * count]


@builds("ldmatrix")
def build_ldmatrix(machine: Machine, instruction: Instruction, index: int) -> Step:
    count, transposed = matrices(instruction), instruction.has("trans")
    targets = [
        machine.target(x, "b32", instruction) for x in machine.vector(instruction.operands[0])
    ]
    addresses = machine.addresses(instruction.operands[1], instruction)

    def step(mask: Mask) -> None:
        lanes = row_lanes(machine, mask, count)
        rows = machine.shared.load(index, lanes, addresses(lanes), 16)
        halves = rows.view(np.uint16).reshape(-1, count, 8, 8)
        if transposed:
            halves = np.ascontiguousarray(halves.swapaxes(2, 3))
        values = halves.view(np.uint32).reshape(-1, count, WARP)
        active = machine.lanes.active(mask)
        for m, target in enumerate(targets):
            target[active] = values[:, m].ravel()

    return step


@builds("stmatrix")
def build_stmatrix(machine: Machine, instruction: Instruction, index: int) -> Step:
    count, transposed = matrices(instruction), instruction.has("trans")
    addresses = machine.addresses(instruction.operands[0], instruction)
    sources = [
        machine.source(x, "b32", instruction) for x in machine.vector(instruction.operands[1])
    ]

    def step(mask: Mask) -> None:
        active = machine.lanes.active(mask)
        held = np.stack([x[active].reshape(-1, WARP) for x in sources], axis=1)
        halves = held.view(np.uint16).reshape(-1, count, 8, 8)
        if transposed:
            halves = halves.swapaxes(2, 3)
        rows = np.ascontiguousarray(halves).reshape(-1, 8).view(np.uint8)
        lanes = row_lanes(machine, mask, count)
        machine.shared.store(index, lanes, addresses(lanes), rows)

    return step
