"""Tensor cores of sm_90a: wgmma.mma_async, whose operands lie in shared memory by descriptor.

A product may read its operands, and owns its registers, until its group has been waited for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from ptx.lanes import WARP, Array, Bools, Ints, Mask
from ptx.machine import Machine, Step, UnsupportedInstructionError, builds
from ptx.module import Immediate, Instruction, Register
from ptx.report import Kind
from ptx.shared import FIRST
from ptx.tensor import DECODE, accumulator, gathered, operand_a

GROUP = 4 * WARP  # a warpgroup
ROWS = 64


@dataclass
class Product:
    """One wgmma in flight: whose it is, what it reads and which registers it owns."""

    lanes: Ints
    group: Ints
    registers: frozenset[str]
    granules: Ints


@builds("wgmma")
def build_wgmma(machine: Machine, instruction: Instruction, index: int) -> Step:
    if instruction.has("fence"):
        return build_fence(machine)
    if instruction.has("commit_group"):
        return build_commit(machine)
    if instruction.has("wait_group"):
        return build_wait(machine, instruction)
    return build_product(machine, instruction, index)


def build_fence(machine: Machine) -> Step:
    def step(_: Mask) -> None:
        machine.changed_registers.clear()

    return step


def build_commit(machine: Machine) -> Step:
    def step(mask: Mask) -> None:
        machine.asynchronous.product_groups[machine.lanes.active(mask)] += 1

    return step


def build_wait(machine: Machine, instruction: Instruction) -> Step:
    state = machine.asynchronous
    operand = instruction.operands[0]
    newest = operand.value if isinstance(operand, Immediate) else 0

    def step(mask: Mask) -> None:
        active = np.broadcast_to(np.asarray(mask), machine.lanes.count)
        left = []
        for product in state.products:
            lanes = product.lanes
            due = (product.group < state.product_groups[lanes] - newest) & active[lanes]
            if due.all():
                finish(machine, product)
            else:
                left.append(product)
        state.products[:] = left

    return step


def finish(machine: Machine, product: Product) -> None:
    """Its reads are over: whoever is ordered after this wait may write there."""
    shadow = machine.shared.shadow
    shadow.multiplying[product.granules] -= 1
    lanes = np.resize(product.lanes, product.granules.size)
    shadow.remember_read(lanes, product.granules, 1)


def descriptors(machine: Machine, source: Array, groups: Ints, instruction: Instruction) -> Ints:
    """One descriptor for each warpgroup; all of its lanes must give the same."""
    values = np.broadcast_to(source, machine.lanes.count).reshape(-1, GROUP)[groups]
    if (values != values[:, :1]).any():
        raise UnsupportedInstructionError(instruction, ": descriptors differ in a warpgroup")
    first: Ints = values[:, 0].copy().view(np.int64)
    return first


def addresses(
    descriptor: int, outer: int, transposed: bool, instruction: Instruction
) -> tuple[Ints, Ints]:
    """Byte addresses of an operand of 16-bit elements, (outer, 16): canonical layouts of the ISA.

    Not transposed, k runs fastest in memory ("K-major"); transposed, m or n does ("MN-major").
    """
    start = (descriptor & 0x3FFF) << 4
    leading = (descriptor >> 16 & 0x3FFF) << 4
    stride = (descriptor >> 32 & 0x3FFF) << 4
    mode = descriptor >> 62 & 3
    if descriptor >> 49 & 7:
        raise UnsupportedInstructionError(instruction, ": base offset in a descriptor")
    mn, k = np.arange(outer)[:, None], np.arange(16)[None, :]
    width = {0: 16, 1: 128, 2: 64, 3: 32}[mode]  # bytes of one row of the swizzled tile
    if mode == 0 and transposed:
        raise UnsupportedInstructionError(instruction, ": MN-major without swizzle")
    if mode == 0:
        linear = mn % 8 * 16 + mn // 8 * stride + k // 8 * leading + k % 8 * 2
        return start + linear, start + linear
    if transposed:
        per = width // 2
        linear = mn % per * 2 + mn // per * leading + k % 8 * width + k // 8 * stride
    else:
        linear = mn % 8 * width + mn // 8 * stride + k * 2
    where = start + linear
    return where, where ^ (where >> 3 & (width - 16))


def read_operand(machine: Machine, index: int, lanes: Ints, swizzled: Ints) -> tuple[Array, Ints]:
    """Bits of an operand and the granules that hold it. `lanes`: of the warpgroup."""
    shared, shadow = machine.shared, machine.shared.shadow
    flat = np.unique(swizzled.ravel() // 16) * 16
    by = lanes[np.arange(flat.size) % lanes.size]
    good, offsets = shared.locate(index, by, flat, 16, "wgmma reads")
    offsets = offsets[good]
    start, n = shared.granules(offsets, 16)
    shadow.read(index, by[good], start, n, recorded=False)
    dirty = shadow.rows_of(shadow.generic, start, n)
    what = "wgmma reads what was written without fence.proxy.async"
    shadow.complain(Kind.ASYNC_PROXY, index, dirty, by[good], what)
    base = int(machine.lanes.of_block[lanes[0]]) * shared.stride - FIRST
    at = np.clip(swizzled + base, 0, shared.data.size - 2) // 2
    return shared.data.view(np.uint16)[at], (start[:, None] + np.arange(n)).ravel()


def build_product(machine: Machine, instruction: Instruction, index: int) -> Step:
    parts = instruction.parts
    shape = re.fullmatch(r"m64n(\d+)k16", next((x for x in parts if x.startswith("m64")), ""))
    types = [x for x in parts if x in ("f32", "f16", "bf16")]
    if shape is None or len(types) != 3 or types[0] != "f32" or types[1] != types[2]:
        raise UnsupportedInstructionError(instruction)
    columns = int(shape[1])
    _, decode = DECODE[types[1]]
    operands = instruction.operands
    names = machine.vector(operands[0])
    targets = [machine.target(x, "f32", instruction) for x in names]
    in_registers = len(machine.vector(operands[1])) == 4
    scale_d = machine.predicate(operands[3], instruction)
    tail = [x.value for x in operands[4:] if isinstance(x, Immediate)]
    if len(targets) != columns // 2 or tail[:2] != [1, 1]:
        raise UnsupportedInstructionError(instruction)
    a_transposed = False if in_registers else bool(tail[2])
    b_transposed = bool(tail[-1])
    a_registers = [
        machine.source(x, "b32", instruction) for x in machine.vector(operands[1]) if in_registers
    ]
    a_descriptor = None if in_registers else machine.source(operands[1], "b64", instruction)
    b_descriptor = machine.source(operands[2], "b64", instruction)
    owned = frozenset(
        x.name
        for x in (*names, *machine.vector(operands[1]))
        if isinstance(x, Register) and x.type != "b64"
    )
    place_a, place_d = operand_a(16, 2), accumulator(columns)
    state, count = machine.asynchronous, machine.lanes.count

    def step(mask: Mask) -> None:
        machine.report.unfenced_registers += len(owned & machine.changed_registers)
        active: Bools = np.broadcast_to(np.asarray(mask), count).reshape(-1, GROUP)
        groups = np.flatnonzero(active.any(1))
        if not active[groups].all():
            raise UnsupportedInstructionError(instruction, ": part of a warpgroup")
        b_of = descriptors(machine, b_descriptor, groups, instruction)
        a_of = b_of
        if a_descriptor is not None:
            a_of = descriptors(machine, a_descriptor, groups, instruction)
        held = (
            place_a.matrix(decode(gathered(a_registers, count)), (16, 16)) if in_registers else None
        )
        sums = place_d.matrix(gathered(targets, count), (16, columns)).reshape(-1, ROWS, columns)
        sums = np.where(
            np.broadcast_to(scale_d(), count).reshape(-1, GROUP)[:, 0, None, None], sums, 0
        )
        for position, group in enumerate(groups):
            lanes = machine.lanes.all[group * GROUP : (group + 1) * GROUP]
            _, where = addresses(int(b_of[position]), columns, b_transposed, instruction)
            bits, granules = read_operand(machine, index, lanes, where)
            right = decode(bits)
            if held is not None:
                left = held.reshape(-1, ROWS, 16)[group]
            else:
                _, where = addresses(int(a_of[position]), ROWS, a_transposed, instruction)
                bits, more = read_operand(machine, index, lanes, where)
                left, granules = decode(bits), np.union1d(granules, more)
            sums[group] = left @ right.T + sums[group]
            machine.shared.shadow.multiplying[granules] += 1
            begun = state.product_groups[lanes].copy()
            state.products.append(Product(lanes, begun, owned, granules))
        flat = place_d.held(sums.reshape(-1, 16, columns)).reshape(count, -1)
        for column, target in enumerate(targets):
            np.copyto(target, flat[:, column], where=mask)

    return step
