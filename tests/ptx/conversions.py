"""cvt: between integers, floating point and the packed 16-bit formats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ptx.lanes import Array, Mask
from ptx.machine import Machine, Step, UnsupportedInstructionError, builds
from ptx.module import TYPES, Instruction, dtype_of
from ptx.numbers import (
    eight_bit_values,
    flushed,
    from_bfloat16,
    narrowed,
    odd_sum,
    to_bfloat16,
    to_eight_bits,
    to_float16,
    to_tfloat32,
)

TO_INTEGER: dict[str, np.ufunc] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
PACKED = ("f16x2", "bf16x2")


@builds("cvt")
def build_cvt(machine: Machine, instruction: Instruction, _: int) -> Step:
    if instruction.has("e4m3x2", "e5m2x2"):
        return build_eight_bits(machine, instruction)
    types = [x for x in instruction.parts if x in TYPES or x == "tf32"]
    if len(types) != 2:
        raise UnsupportedInstructionError(instruction)
    to, came = types
    if to in PACKED:
        return build_pack(machine, instruction, to)
    if to == "tf32":
        if not instruction.has("rna"):
            raise UnsupportedInstructionError(instruction)
        return convert(machine, instruction, "b32", "f32", lambda x: to_tfloat32(x).view("u4"))
    function = conversion(instruction, to, came)
    return convert(machine, instruction, to, came, function)


def convert(
    machine: Machine,
    instruction: Instruction,
    to: str,
    came: str,
    function: Callable[[Array], Array],
) -> Step:
    target = machine.target(instruction.operands[0], to, instruction)
    source = machine.source(instruction.operands[1], came, instruction)

    def step(mask: Mask) -> None:
        np.copyto(target, function(source), where=mask, casting="same_kind")

    return step


def build_pack(machine: Machine, instruction: Instruction, to: str) -> Step:
    """cvt.rn.bf16x2.f32 d, a, b: a goes to the upper half."""
    if instruction.has("satfinite") or len(instruction.operands) != 3:
        raise UnsupportedInstructionError(instruction)
    target = machine.target(instruction.operands[0], "b32", instruction)
    high, low = (machine.source(x, "f32", instruction) for x in instruction.operands[1:])
    rounding = "rz" if instruction.has("rz") else "rn"
    relu = instruction.has("relu")

    def half(x: Array) -> Array:
        if relu:
            x = np.where(x < 0, np.float32(0), x)
        if to == "bf16x2":
            return to_bfloat16(x, rounding)
        return to_float16(x, rounding).view(np.uint16)

    def step(mask: Mask) -> None:
        bits = (half(high).astype(np.uint32) << np.uint32(16)) | half(low)
        np.copyto(target, bits, where=mask)

    return step


def build_eight_bits(machine: Machine, instruction: Instruction) -> Step:
    """cvt.rn.satfinite.e4m3x2.f32 d, a, b (a above), and cvt.rn.f16x2.e4m3x2 d, a."""
    name = next(x for x in ("e4m3", "e5m2") if f"{x}x2" in instruction.parts)
    if instruction.has("relu") or not instruction.has("rn"):
        raise UnsupportedInstructionError(instruction)
    if instruction.parts[-1] == "f32" and instruction.has("satfinite"):
        small = machine.target(instruction.operands[0], "b16", instruction)
        high, low = (machine.source(x, "f32", instruction) for x in instruction.operands[1:])

        def narrow(mask: Mask) -> None:
            upper = to_eight_bits(high, name).astype(np.uint16) << np.uint16(8)
            np.copyto(small, upper | to_eight_bits(low, name), where=mask)

        return narrow
    if instruction.parts[-2] != "f16x2":
        raise UnsupportedInstructionError(instruction)
    wide = machine.target(instruction.operands[0], "b32", instruction)
    source = machine.source(instruction.operands[1], "b16", instruction)
    values = eight_bit_values(name).astype(np.float16).view(np.uint16).astype(np.uint32)

    def widen(mask: Mask) -> None:
        pair = values[source & 0xFF] | (values[source >> 8] << np.uint32(16))
        np.copyto(wide, pair, where=mask)

    return widen


def conversion(instruction: Instruction, to: str, came: str) -> Callable[[Array], Array]:
    """The function from a view of the source to an array of `to`."""
    from_float, to_float = is_float(came), is_float(to)
    if from_float and to_float:
        return float_to_float(instruction, to, came)
    if from_float:
        return float_to_integer(instruction, to, came)
    if to_float:
        return integer_to_float(instruction, to)
    return integer_to_integer(instruction, to)


def is_float(type_name: str) -> bool:
    return type_name in ("f16", "bf16", "f32", "f64")


def widened(x: Array, type_name: str) -> Array:
    if type_name == "bf16":
        return from_bfloat16(x)
    return x.astype(np.float32) if type_name == "f16" else x


def float_to_float(instruction: Instruction, to: str, came: str) -> Callable[[Array], Array]:
    rounding = next((x for x in ("rn", "rz", "rm", "rp") if x in instruction.parts), "rn")
    whole = next((TO_INTEGER[x] for x in instruction.parts if x in TO_INTEGER), None)
    ftz, saturate = instruction.has("ftz"), instruction.has("sat")
    if (to in ("f16", "bf16") and rounding not in ("rn", "rz")) or (
        to in ("f16", "bf16") and came == "f64"
    ):
        raise UnsupportedInstructionError(instruction)

    def function(x: Array) -> Array:
        wide = widened(x, came)
        if ftz and wide.dtype == np.float32:
            wide = flushed(wide)
        if whole is not None:
            wide = whole(wide)
        if saturate:
            wide = np.where(np.isnan(wide), 0, np.clip(wide, 0, 1)).astype(wide.dtype)
        if to == "bf16":
            result = to_bfloat16(wide, rounding)
            return np.where(wide < 0, np.uint16(0), result) if instruction.has("relu") else result
        if to == "f16":
            return to_float16(wide, rounding)
        if to == "f32" and wide.dtype == np.float64:
            narrow = narrowed(wide, rounding)
            return flushed(narrow) if ftz else narrow
        return wide.astype(dtype_of(to))

    return function


def float_to_integer(instruction: Instruction, to: str, came: str) -> Callable[[Array], Array]:
    """Clamped to the range of the type; NaN gives 0, or the highest bit for 64 bits."""
    whole = next((TO_INTEGER[x] for x in instruction.parts if x in TO_INTEGER), None)
    if whole is None:
        raise UnsupportedInstructionError(instruction)
    rounds = whole
    dtype = dtype_of(to)
    limits = np.iinfo(dtype)
    invalid = 1 << 63 if came == "f64" or dtype.itemsize == 8 else 0

    def function(x: Array) -> Array:
        wide = widened(x, came)
        if instruction.has("ftz"):
            wide = flushed(wide)
        value = rounds(wide).astype(np.float64)
        inside = (value >= float(limits.min)) & (value < float(limits.max) + 1.0)
        result = np.where(inside, value, 0).astype(dtype)
        result = np.where(value >= float(limits.max), np.array(limits.max, dtype), result)
        result = np.where(value < float(limits.min), np.array(limits.min, dtype), result)
        nan = np.array([invalid >> (64 - 8 * dtype.itemsize)], f"u{dtype.itemsize}").view(dtype)
        return np.where(np.isnan(wide), nan, result)

    return function


def integer_to_float(instruction: Instruction, to: str) -> Callable[[Array], Array]:
    rounding = next((x for x in ("rn", "rz", "rm", "rp") if x in instruction.parts), "rn")
    if to not in ("f32", "f64", "f16") or (rounding != "rn" and to != "f32"):
        raise UnsupportedInstructionError(instruction)

    def function(x: Array) -> Array:
        if rounding == "rn":
            return x.astype(dtype_of(to))
        if x.dtype.itemsize < 8:
            return narrowed(x.astype(np.float64), rounding)
        low = x & x.dtype.type(0xFFFF_FFFF)  # exact in two parts
        return narrowed(odd_sum((x - low).astype(np.float64), low.astype(np.float64)), rounding)

    return function


def integer_to_integer(instruction: Instruction, to: str) -> Callable[[Array], Array]:
    dtype = dtype_of(to)
    limits = np.iinfo(dtype)

    def function(x: Array) -> Array:
        if not instruction.has("sat"):
            return x.astype(dtype)
        have = np.iinfo(x.dtype)
        low, high = max(limits.min, have.min), min(limits.max, have.max)
        return np.clip(x, x.dtype.type(low), x.dtype.type(high)).astype(dtype)

    return function
