"""Floating-point arithmetic, and the functions that the device approximates.

Errors of approximations are those that the PTX ISA documents (section "Floating Point
Instructions"); `Machine.noise` says what share of them is applied.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ptx.integers import build_integer, ufunc
from ptx.lanes import Array, Mask
from ptx.machine import Builder, Machine, Step, UnsupportedInstructionError, builds
from ptx.module import Instruction
from ptx.numbers import (
    SMALLEST_NORMAL,
    flushed,
    fma32,
    fma64,
    from_bfloat16,
    narrowed,
    odd_sum,
    perturbed,
    to_bfloat16,
)

ROUNDINGS = ("rn", "rz", "rm", "rp")
PACKED = ("f16", "f16x2", "bf16", "bf16x2")


@builds("add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "neg", "abs", "sad")
def build_arithmetic(machine: Machine, instruction: Instruction, _: int) -> Step:
    type_name = instruction.type
    if type_name in PACKED:
        return build_packed(machine, instruction)
    if type_name in ("f32", "f64"):
        return build_float(machine, instruction)
    return build_integer(machine, instruction)


def rounding_of(instruction: Instruction) -> str:
    return next((x for x in ROUNDINGS if x in instruction.parts), "rn")


def build_float(machine: Machine, instruction: Instruction) -> Step:
    type_name, opcode = instruction.type, instruction.opcode
    rounding, ftz = rounding_of(instruction), instruction.has("ftz")
    plain = rounding == "rn" and not ftz and not instruction.has("sat")
    simple: dict[str, np.ufunc] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
    if opcode in simple and plain:
        return ufunc(machine, instruction, simple[opcode], type_name)
    if type_name == "f64":
        if rounding != "rn":
            raise UnsupportedInstructionError(instruction)
        wide: dict[str, Callable[..., Array]] = {
            "fma": fma64,
            "mad": fma64,
            "div": np.divide,
            "min": extreme(instruction, "min"),
            "max": extreme(instruction, "max"),
            "neg": np.negative,
            "abs": np.absolute,
        }
        return floats(machine, instruction, wide[opcode], False)
    if opcode == "div" and instruction.has("approx", "full"):
        error = 2 * 2.0**-23
        return floats(
            machine,
            instruction,
            lambda x, y: perturbed(x, np.divide(x, y, dtype=np.float64), error, machine.noise),
            ftz,
        )
    exact: dict[str, Callable[..., Array]] = {
        "add": lambda x, y: directed(odd_sum(x.astype("f8"), y.astype("f8")), rounding),
        "sub": lambda x, y: directed(odd_sum(x.astype("f8"), -y.astype("f8")), rounding),
        "mul": lambda x, y: directed(np.multiply(x, y, dtype=np.float64), rounding),
        "fma": lambda x, y, z: fma32(x, y, z, rounding),
        "mad": lambda x, y, z: fma32(x, y, z, rounding),
        "div": np.divide,
        "min": extreme(instruction, "min"),
        "max": extreme(instruction, "max"),
        "neg": np.negative,
        "abs": np.absolute,
    }
    if opcode in simple and rounding == "rn":
        return floats(machine, instruction, simple[opcode], ftz)
    if opcode == "div" and rounding != "rn":
        raise UnsupportedInstructionError(instruction)
    return floats(machine, instruction, exact[opcode], ftz)


def directed(wide: Array, rounding: str) -> Array:
    return narrowed(wide, rounding)


def floats(
    machine: Machine, instruction: Instruction, function: Callable[..., Array], ftz: bool
) -> Step:
    """d = function(…), with subnormals flushed before and after, and saturated to [0, 1]."""
    type_name = instruction.type
    target = machine.target(instruction.operands[0], type_name, instruction)
    sources = [machine.source(x, type_name, instruction) for x in instruction.operands[1:]]
    saturate, dtype = instruction.has("sat"), target.dtype

    def step(mask: Mask) -> None:
        arguments = [flushed(x) for x in sources] if ftz else sources
        result = np.asarray(function(*arguments)).astype(dtype, copy=False)
        if saturate:
            result = np.where(np.isnan(result), 0, np.clip(result, 0, 1)).astype(dtype)
        np.copyto(target, flushed(result) if ftz else result, where=mask)

    return step


def extreme(instruction: Instruction, opcode: str) -> Callable[..., Array]:
    """min and max: a number wins over NaN unless .NaN says otherwise, and +0 is above -0."""
    if instruction.has("xorsign"):
        raise UnsupportedInstructionError(instruction)
    pick: np.ufunc = np.fmin if opcode == "min" else np.fmax
    if instruction.has("NaN"):
        pick = np.minimum if opcode == "min" else np.maximum
    join: np.ufunc = np.bitwise_or if opcode == "min" else np.bitwise_and

    def function(x: Array, y: Array) -> Array:
        result: Array = pick(x, y)
        zeros = (x == 0) & (y == 0)
        if zeros.any():
            bits = np.dtype(f"u{result.dtype.itemsize}")
            signed = join(x.view(bits), y.view(bits))
            result = np.where(zeros, signed, result.view(bits)).view(result.dtype)
        return result

    return function


def build_packed(machine: Machine, instruction: Instruction) -> Step:
    """float16 and bfloat16, one or two in a register, each operation rounded once."""
    type_name, opcode = instruction.type, instruction.opcode
    if instruction.has("sat", "relu"):
        raise UnsupportedInstructionError(instruction)
    functions: dict[str, Callable[..., Array]] = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "fma": lambda x, y, z: odd_sum(x * y, z),  # exact in float64
        "min": extreme(instruction, "min"),
        "max": extreme(instruction, "max"),
        "neg": np.negative,
        "abs": np.absolute,
    }
    if opcode not in functions:
        raise UnsupportedInstructionError(instruction)
    brain = type_name.startswith("bf")
    register = "b32" if type_name.endswith("x2") else "b16"
    target = machine.target(instruction.operands[0], register, instruction).view(np.uint16)
    sources = [machine.source(x, register, instruction) for x in instruction.operands[1:]]
    per = 2 if register == "b32" else 1

    def step(mask: Mask) -> None:
        wide = []
        for source in sources:
            bits = np.ascontiguousarray(source).view(np.uint16)
            half = from_bfloat16(bits) if brain else bits.view(np.float16)
            wide.append(half.astype(np.float64))
        result = functions[opcode](*wide)
        rounded = to_bfloat16(odd32(result)) if brain else result.astype("f2").view("u2")
        where = mask if mask is True else np.repeat(mask, per)
        np.copyto(target, rounded, where=where)

    return step


def odd32(wide: Array) -> Array:
    """float64 to float32, rounded to odd: what is made of it next is rounded once."""
    down = narrowed(wide, "rz")
    bits = down.view(np.uint32)
    inexact = (down.astype(np.float64) != wide) & np.isfinite(wide)
    return np.where(inexact, bits | np.uint32(1), bits).view(np.float32)


def approximate(function: Callable[[Array], Array], relative: float) -> Builder:
    """A builder for a function of one float32 with a documented relative error."""

    def build(machine: Machine, instruction: Instruction, _: int) -> Step:
        if instruction.type == "f64" and instruction.opcode in ("rcp", "rsqrt", "sqrt"):
            if instruction.has("approx", "ftz"):
                return floats(machine, instruction, gross(function), False)
            if instruction.has("rn") and instruction.opcode != "rsqrt":
                return floats(machine, instruction, function, False)
        if instruction.type != "f32":
            raise UnsupportedInstructionError(instruction)
        error = relative if instruction.has("approx") else 0.0
        if not error and rounding_of(instruction) not in instruction.parts:
            raise UnsupportedInstructionError(instruction)
        if not error and not instruction.has("rn"):
            raise UnsupportedInstructionError(instruction)

        def noisy(x: Array) -> Array:
            return perturbed(x, function(x.astype(np.float64)), error, machine.noise)

        return floats(machine, instruction, noisy, instruction.has("ftz"))

    return build


def gross(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`.approx.ftz.f64`: the upper 32 bits of the result, of the upper 32 bits of the argument."""
    upper = np.uint64(0xFFFF_FFFF_0000_0000)

    def approximation(x: Array) -> Array:
        argument = (x.view(np.uint64) & upper).view(np.float64)
        small = np.abs(argument) < np.finfo(np.float64).tiny
        result = function(np.where(small, np.copysign(0.0, argument), argument))
        result = (result.view(np.uint64) & upper).view(np.float64)
        small = np.abs(result) < np.finfo(np.float64).tiny
        return np.where(small, np.copysign(0.0, result), result)

    return approximation


def reciprocal(x: Array) -> Array:
    return 1.0 / x


def reciprocal_root(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


# Relative errors: rcp, sqrt 1 ulp; rsqrt 2^-22.9; ex2 2^-22; tanh 2^-11; sin and cos 2^-20.5
# (absolute, so an upper bound where the value is at most 1).
builds("rcp")(approximate(reciprocal, 2.0**-23))
builds("sqrt")(approximate(np.sqrt, 2.0**-23))
builds("rsqrt")(approximate(reciprocal_root, 2.0**-22.9))
builds("ex2")(approximate(np.exp2, 2.0**-22))
builds("tanh")(approximate(np.tanh, 2.0**-11))
builds("sin")(approximate(np.sin, 2.0**-20.5))
builds("cos")(approximate(np.cos, 2.0**-20.5))


@builds("lg2")
def build_lg2(machine: Machine, instruction: Instruction, _: int) -> Step:
    """Error 2^-22: absolute where the argument is within (0.5, 2), relative elsewhere."""

    def logarithm(x: Array) -> Array:
        exact = np.log2(x.astype(np.float64))
        noise = perturbed(x, np.ones_like(exact), 2.0**-22, machine.noise) - 1.0
        near_one = (x > 0.5) & (x < 2.0) & (x != 1.0)
        return exact + noise * np.where(near_one, 1.0, np.where(np.isfinite(exact), exact, 0.0))

    if not instruction.has("approx"):
        raise UnsupportedInstructionError(instruction)
    return floats(machine, instruction, logarithm, instruction.has("ftz"))


@builds("copysign")
def build_copysign(machine: Machine, instruction: Instruction, _: int) -> Step:
    return floats(machine, instruction, lambda a, b: np.copysign(b, a), False)


@builds("testp")
def build_testp(machine: Machine, instruction: Instruction, _: int) -> Step:
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= SMALLEST_NORMAL),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < SMALLEST_NORMAL),
    }
    test = tests[instruction.parts[1]]
    target = machine.target(instruction.operands[0], "pred", instruction)
    source = machine.source(instruction.operands[1], instruction.type, instruction)

    def step(mask: Mask) -> None:
        np.copyto(target, test(source), where=mask)

    return step
