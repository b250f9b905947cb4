"""Integer arithmetic, logic, shifts and bit fields."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ptx.lanes import Array, Mask
from ptx.machine import UNSIGNED, Machine, Step, UnsupportedInstructionError, builds
from ptx.module import Instruction, dtype_of

WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def elementwise(
    machine: Machine, instruction: Instruction, function: Callable[..., Array], *types: str
) -> Step:
    """d = function(a, b, …); `types`: of d and then of every operand, or one for all."""
    every = types if len(types) > 1 else types * len(instruction.operands)
    target = machine.target(instruction.operands[0], every[0], instruction)
    sources = [
        machine.source(operand, type_name, instruction)
        for operand, type_name in zip(instruction.operands[1:], every[1:], strict=True)
    ]

    def step(mask: Mask) -> None:
        np.copyto(target, function(*sources), where=mask, casting="same_kind")

    return step


def ufunc(machine: Machine, instruction: Instruction, function: np.ufunc, type_name: str) -> Step:
    """As `elementwise`, in place and so without a temporary."""
    target = machine.target(instruction.operands[0], type_name, instruction)
    sources = [machine.source(x, type_name, instruction) for x in instruction.operands[1:]]
    if target.dtype != sources[0].dtype:
        return elementwise(machine, instruction, function, type_name)

    def step(mask: Mask) -> None:
        function(*sources, out=target, where=mask)

    return step


@builds("and", "or", "xor", "not", "cnot")
def build_logic(machine: Machine, instruction: Instruction, _: int) -> Step:
    type_name = instruction.type
    if instruction.opcode == "cnot":
        return elementwise(machine, instruction, lambda x: (x == 0).astype(x.dtype), type_name)
    functions: dict[str, np.ufunc] = {
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "not": np.invert,
    }
    return ufunc(machine, instruction, functions[instruction.opcode], type_name)


@builds("lop3")
def build_lop3(machine: Machine, instruction: Instruction, _: int) -> Step:
    table = machine.source(instruction.operands[4], "u32", instruction)
    bits = int(table[0])
    target = machine.target(instruction.operands[0], "b32", instruction)
    a, b, c = (machine.source(x, "b32", instruction) for x in instruction.operands[1:4])

    def step(mask: Mask) -> None:
        result = np.zeros(machine.lanes.count, np.uint32)
        for row in range(8):
            if bits >> row & 1:
                term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
                result |= term
        np.copyto(target, result, where=mask)

    return step


@builds("shl", "shr")
def build_shift(machine: Machine, instruction: Instruction, _: int) -> Step:
    type_name = instruction.type
    bits = 8 * dtype_of(type_name).itemsize
    left = instruction.opcode == "shl"

    def shift(x: Array, by: Array) -> Array:
        """By the width or more: zeros, or copies of the sign."""
        within = np.minimum(by, bits - 1).astype(x.dtype)
        result: Array = x << within if left else x >> within
        if left or x.dtype.kind == "u":
            result = np.where(by >= bits, np.zeros_like(result), result)
        return result

    return elementwise(machine, instruction, shift, type_name, type_name, "u32")


@builds("shf")
def build_funnel_shift(machine: Machine, instruction: Instruction, _: int) -> Step:
    left, clamp = instruction.has("l"), instruction.has("clamp")

    def shift(low: Array, high: Array, by: Array) -> Array:
        n = (np.minimum(by, 32) if clamp else by & 31).astype(np.uint64)
        both = (high.astype(np.uint64) << np.uint64(32)) | low
        if left:  # n = 0 gives high; n = 32 gives low
            return (
                ((both << n) >> np.uint64(32)).astype(np.uint32)
                if not clamp
                else np.where(
                    n == 32, low, ((both << (n % np.uint64(32))) >> np.uint64(32)).astype(np.uint32)
                )
            )
        return (both >> n).astype(np.uint32)

    return elementwise(machine, instruction, shift, "b32")


@builds("bfe")
def build_extract(machine: Machine, instruction: Instruction, _: int) -> Step:
    type_name = instruction.type
    width = 8 * dtype_of(type_name).itemsize

    def extract(x: Array, position: Array, length: Array) -> Array:
        start = (position & 0xFF).astype(np.int64)
        count = (length & 0xFF).astype(np.int64)
        last = np.minimum(start + count - 1, width - 1)
        sign = (x >> last.clip(0).astype(x.dtype)) & 1 if x.dtype.kind == "i" else np.zeros_like(x)
        sign = np.where(count == 0, 0, sign).astype(bool)
        pattern = x.astype(np.int64).view(np.uint64)
        if width == 32:
            pattern = pattern & np.uint64(0xFFFF_FFFF)
        moved = np.where(start < width, pattern >> np.minimum(start, 63).astype(np.uint64), 0)
        ones = ~np.uint64(0)
        kept = np.where(
            count >= 64,
            ones,
            (np.uint64(1) << np.minimum(count, 63).astype(np.uint64)) - np.uint64(1),
        )
        # beyond the register's end, and beyond the field, the sign is repeated
        have = np.clip(width - start, 0, count).astype(np.uint64)
        filled = np.where(have >= 64, np.uint64(0), ones << np.minimum(have, 63))
        joined: Array = (moved & kept) | np.where(sign, filled, np.uint64(0))
        return joined.astype(UNSIGNED[x.dtype.itemsize]).view(x.dtype)

    return elementwise(machine, instruction, extract, type_name, type_name, "u32", "u32")


@builds("bfi")
def build_insert(machine: Machine, instruction: Instruction, _: int) -> Step:
    type_name = instruction.type
    width = 8 * dtype_of(type_name).itemsize

    def insert(field: Array, into: Array, position: Array, length: Array) -> Array:
        start = np.minimum(position & 0xFF, 64).astype(np.uint64)
        count = np.minimum(length & 0xFF, 64).astype(np.uint64)
        one = np.uint64(1)
        ones = np.where(count > 63, ~np.uint64(0), (one << np.minimum(count, 63)) - one)
        kept = np.where(start > 63, np.uint64(0), ones << np.minimum(start, 63))
        moved = np.where(start > 63, np.uint64(0), field.astype(np.uint64) << np.minimum(start, 63))
        return ((into & ~kept) | (moved & kept)).astype(UNSIGNED[width // 8])

    return elementwise(machine, instruction, insert, type_name, type_name, type_name, "u32", "u32")


@builds("prmt")
def build_permute(machine: Machine, instruction: Instruction, _: int) -> Step:
    if len(instruction.parts) > 2:
        raise UnsupportedInstructionError(instruction)

    def permute(a: Array, b: Array, selector: Array) -> Array:
        both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
        result = np.zeros_like(both)
        for byte in range(4):
            pick = (selector >> np.uint32(4 * byte)) & np.uint32(0xF)
            value = (both >> ((pick & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(
                0xFF
            )
            spread = np.where(value & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
            value = np.where(pick & np.uint32(8), spread, value)
            result |= value << np.uint64(8 * byte)
        return result.astype(np.uint32)

    return elementwise(machine, instruction, permute, "b32")


@builds("popc", "clz", "brev", "bfind")
def build_counts(machine: Machine, instruction: Instruction, _: int) -> Step:
    type_name = instruction.type
    width = 8 * dtype_of(type_name).itemsize

    def bits_of(x: Array) -> Array:
        """(n, width), the lowest first."""
        raw = np.ascontiguousarray(x).view(np.uint8).reshape(x.size, -1)
        return np.unpackbits(raw, axis=1, bitorder="little")

    def count(x: Array) -> Array:
        bits: Array = bits_of(x)
        result: Array
        if instruction.opcode == "popc":
            result = bits.sum(1)
            return result.astype(np.uint32)
        if instruction.opcode == "brev":
            result = np.packbits(bits[:, ::-1], axis=1, bitorder="little").view(x.dtype)
            return result.ravel()
        if x.dtype.kind == "i":  # bfind looks for the first bit that differs from the sign
            bits = bits_of(np.where(x < 0, ~x, x))
        highest: Array = np.where(bits.any(1), width - 1 - np.argmax(bits[:, ::-1], axis=1), -1)
        if instruction.opcode == "clz":
            return (width - 1 - highest).astype(np.uint32)
        shift = instruction.has("shiftamt")
        result = np.where(highest >= 0, width - 1 - highest, -1) if shift else highest
        return result.astype(np.int32).view(np.uint32)

    answer = type_name if instruction.opcode == "brev" else "u32"
    return elementwise(machine, instruction, count, answer, type_name)


def high_part(x: Array, y: Array) -> Array:
    """The upper half of a product."""
    if x.dtype.itemsize < 8:
        wide = np.dtype(f"{x.dtype.kind}8").type
        product: Array = (x.astype(wide) * y.astype(wide)) >> wide(8 * x.dtype.itemsize)
        return product.astype(x.dtype)
    u, v = x.view(np.uint64), y.view(np.uint64)
    low, half = np.uint64(0xFFFF_FFFF), np.uint64(32)
    middle = (u >> half) * (v & low) + (((u & low) * (v & low)) >> half)
    result: Array = (u >> half) * (v >> half) + (middle >> half)
    result = result + (((u & low) * (v >> half) + (middle & low)) >> half)
    if x.dtype.kind == "i":
        result = result - np.where(x < 0, v, 0) - np.where(y < 0, u, 0)
    signed: Array = result.astype(np.uint64).view(x.dtype)
    return signed


def truncated_quotient(x: Array, y: Array) -> Array:
    """Toward zero; by zero gives all ones, as on the device."""
    safe = np.where(y == 0, 1, y).astype(y.dtype)
    quotient: Array = x // safe
    if x.dtype.kind == "i":
        quotient = quotient + ((quotient * safe != x) & ((x < 0) != (safe < 0)))
    return np.where(y == 0, ~np.zeros_like(quotient), quotient).astype(x.dtype)


def truncated_remainder(x: Array, y: Array) -> Array:
    return np.where(y == 0, x, x - truncated_quotient(x, y) * y).astype(x.dtype)


def saturated_sum(x: Array, y: Array, sign: int) -> Array:
    limits = np.iinfo(np.int32)
    total: Array = x.astype(np.int64) + sign * y.astype(np.int64)
    return np.clip(total, limits.min, limits.max).astype(np.int32)


def build_integer(machine: Machine, instruction: Instruction) -> Step:
    """add, sub, mul, mad, div, rem, min, max, neg, abs, sad of integers."""
    type_name, opcode = instruction.type, instruction.opcode
    if instruction.has("cc") or opcode in ("addc", "subc"):
        raise UnsupportedInstructionError(instruction)
    if instruction.has("sat"):
        if opcode not in ("add", "sub"):
            raise UnsupportedInstructionError(instruction)
        sign = 1 if opcode == "add" else -1
        return elementwise(machine, instruction, lambda x, y: saturated_sum(x, y, sign), "s32")
    if opcode in ("mul", "mad") and instruction.has("wide"):
        wide = WIDER[type_name]
        dtype = dtype_of(wide)
        types = (wide, type_name, type_name, wide)[: len(instruction.operands)]
        return elementwise(
            machine,
            instruction,
            lambda x, y, z=0: x.astype(dtype) * y.astype(dtype) + z,
            *types,
        )
    if opcode in ("mul", "mad") and instruction.has("hi"):
        return elementwise(machine, instruction, lambda x, y, z=0: high_part(x, y) + z, type_name)
    simple: dict[str, np.ufunc] = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
        "neg": np.negative,
        "abs": np.absolute,
    }
    if opcode in simple:
        return ufunc(machine, instruction, simple[opcode], type_name)
    others: dict[str, Callable[..., Array]] = {
        "mad": lambda x, y, z: x * y + z,
        "div": truncated_quotient,
        "rem": truncated_remainder,
        "sad": lambda x, y, z: z + np.where(x > y, x - y, y - x).astype(z.dtype),
    }
    if opcode not in others:
        raise UnsupportedInstructionError(instruction)
    return elementwise(machine, instruction, others[opcode], type_name)
