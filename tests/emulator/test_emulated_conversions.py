"""cvt, mov and the choices between values."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from emulator.assemble import Array, evaluate
from emulator.test_emulated_floats import numbers, rounded
from emulator.test_emulated_integers import values, wrapped
from ptx.module import dtype_of


def convert(form: str, x: Array, came: str, to: str) -> Array:
    return evaluate(f"cvt.{form} $out, $a;", {"a": x}, to, {"a": came})


@pytest.mark.parametrize("came", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("to", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_integers_are_cut_and_extended(came: str, to: str) -> None:
    x = values(came, 1)
    held = to if dtype_of(to).itemsize > 1 else f"{to[0]}16"
    got = convert(f"{to}.{came}", x, came, held)
    assert got.tolist() == [wrapped(v, to) for v in x.tolist()]


@pytest.mark.parametrize("to", ["u8", "s8", "u16", "s16", "s32"])
def test_integers_saturate(to: str) -> None:
    x = values("s64", 2)
    limits = np.iinfo(dtype_of(to))
    held = to if dtype_of(to).itemsize > 1 else f"{to[0]}16"
    got = convert(f"sat.{to}.s64", x, "s64", held)
    assert got.tolist() == [min(max(v, limits.min), limits.max) for v in x.tolist()]


@pytest.mark.parametrize("came", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integers_to_float_are_rounded_once(came: str, mode: str) -> None:
    x = values(came, 3)
    got = convert(f"{mode}.f32.{came}", x, came, "f32")
    assert got.tolist() == [rounded(Fraction(v), mode) for v in x.tolist()]


def brain_values(bits: Array) -> Array:
    """bfloat16 as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


WHOLE = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


@pytest.mark.parametrize("mode", WHOLE)
@pytest.mark.parametrize("to", ["u32", "s32", "u64", "s64", "s16"])
def test_floats_to_integers_are_clamped(mode: str, to: str) -> None:
    x = np.array([*numbers(4, 70), 0.5, 1.5, 2.5, -0.5, -1.5, 2.0**31, 2.0**63], np.float32)
    limits = np.iinfo(dtype_of(to))
    got = convert(f"{mode}.{to}.f32", x, "f32", to)
    want = [min(max(WHOLE[mode](v), limits.min), limits.max) for v in x.tolist()]
    assert got.tolist() == want


def test_nan_and_infinity_to_integers() -> None:
    x = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert convert("rzi.s32.f32", x, "f32", "s32").tolist() == [0, 2**31 - 1, -(2**31)]
    assert convert("rzi.u32.f32", x, "f32", "u32").tolist() == [0, 2**32 - 1, 0]
    assert convert("rzi.s64.f32", x, "f32", "s64").tolist() == [-(2**63), 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("mode", WHOLE)
def test_floats_are_rounded_to_whole_floats(mode: str) -> None:
    x = np.array([*numbers(5), 0.5, 1.5, 2.5, -2.5], np.float32)
    assert convert(f"{mode}.f32.f32", x, "f32", "f32").tolist() == [
        float(WHOLE[mode](v)) for v in x.tolist()
    ]


@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_floats_to_halves(mode: str) -> None:
    x = numbers(6, 12)
    x = x[np.abs(x) < 60000]
    got = convert(f"{mode}.f16.f32", x, "f32", "f16")
    assert got.tolist() == [rounded(Fraction(v), mode, 11, -24) for v in x.tolist()]
    brain = convert(f"{mode}.bf16.f32", x, "f32", "b16")
    assert brain_values(brain).tolist() == [rounded(Fraction(v), mode, 8, -133) for v in x.tolist()]


def test_halves_overflow_to_infinity_unless_rounded_toward_zero() -> None:
    x = np.array([65519, 65520, -1e9, np.inf, np.nan], np.float32)
    near = convert("rn.f16.f32", x, "f32", "f16")
    np.testing.assert_array_equal(near, np.array([65504, np.inf, -np.inf, np.inf, np.nan], "f2"))
    zero = convert("rz.f16.f32", x, "f32", "f16")
    np.testing.assert_array_equal(zero, np.array([65504, 65504, -65504, np.inf, np.nan], "f2"))
    brain = convert("rn.bf16.f32", np.array([3.4e38, np.nan], np.float32), "f32", "b16")
    assert brain.tolist() == [0x7F80, 0x7FFF]


def test_halves_to_floats() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)[::7].copy()
    got = convert("f32.f16", bits.view(np.float16), "f16", "f32")
    np.testing.assert_array_equal(got, bits.view(np.float16).astype(np.float32))
    brain = convert("f32.bf16", bits, "b16", "f32")
    np.testing.assert_array_equal(brain, brain_values(bits))


@pytest.mark.parametrize("to", ["f16x2", "bf16x2"])
def test_packing_puts_the_first_operand_above(to: str) -> None:
    high, low = numbers(7, 10).clip(-6e4, 6e4), numbers(8, 10).clip(-6e4, 6e4)
    got = evaluate(
        f"cvt.rn.{to}.f32 $out, $a, $b;", {"a": high, "b": low}, "b32", {"a": "f32", "b": "f32"}
    )
    pieces = got.view(np.uint16).reshape(-1, 2)
    for column, x in enumerate((low, high)):
        if to == "f16x2":
            shown, digits, lowest = pieces[:, column].copy().view(np.float16), 11, -24
        else:
            shown, digits, lowest = brain_values(pieces[:, column]), 8, -133
        want = [rounded(Fraction(v), "rn", digits, lowest) for v in x.tolist()]
        assert shown.tolist() == want


EIGHT = {"e4m3": (4, -9, 448.0), "e5m2": (3, -16, 57344.0)}  # digits, lowest unit, largest


@pytest.mark.parametrize("name", EIGHT)
def test_eight_bit_floats(name: str) -> None:
    digits, lowest, largest = EIGHT[name]
    high, low = numbers(13, 20), numbers(14, 6)
    types = {"a": "f32", "b": "f32"}
    got = evaluate(
        f"cvt.rn.satfinite.{name}x2.f32 %h20, $a, $b; cvt.rn.f16x2.{name}x2 $out, %h20;",
        {"a": high, "b": low},
        "b32",
        types,
    )
    shown = got.view(np.float16).reshape(-1, 2)
    for column, x in enumerate((low, high)):
        want = [
            max(-largest, min(largest, rounded(Fraction(v), "rn", digits, lowest)))
            for v in x.tolist()
        ]
        assert shown[:, column].tolist() == want


def test_patterns_of_eight_bit_floats() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 2.0**-9], np.float32)
    zero = np.zeros_like(x)
    got = evaluate(
        "cvt.rn.satfinite.e4m3x2.f32 $out, $b, $a;", {"a": x, "b": zero}, "b16",
        {"a": "f32", "b": "f32"},
    )  # fmt: skip
    assert got.tolist() == [0x7F, 0x7E, 0xFE, 0x80, 0x01]
    got = evaluate(
        "cvt.rn.satfinite.e5m2x2.f32 $out, $b, $a;", {"a": x, "b": zero}, "b16",
        {"a": "f32", "b": "f32"},
    )  # fmt: skip
    assert got.tolist() == [0x7F, 0x7B, 0xFB, 0x80, 0x18]


def test_tensor_float_ties_away_from_zero() -> None:
    x = np.array([1 + 2.0**-11, 1 + 2.0**-11 - 2.0**-23, -1 - 2.0**-11], np.float32)
    got = convert("rna.tf32.f32", x, "f32", "b32").view(np.float32)
    assert got.tolist() == [1 + 2.0**-10, 1.0, -1 - 2.0**-10]


def test_double_to_float_and_back() -> None:
    x = np.random.default_rng(0).standard_normal(50)
    got = convert("rn.f32.f64", x, "f64", "f32")
    np.testing.assert_array_equal(got, x.astype(np.float32))
    np.testing.assert_array_equal(convert("f64.f32", got, "f32", "f64"), got.astype(np.float64))


def test_moving_parts_and_wholes() -> None:
    x = values("u64", 9)
    lines = "mov.b64 {%r40, %r41}, $a; mov.b64 $out, {%r41, %r40};"
    got = evaluate(lines, {"a": x}, "u64", {"a": "u64"})
    np.testing.assert_array_equal(got, (x << np.uint64(32)) | (x >> np.uint64(32)))
    y = values("u32", 9)
    lines = "mov.b32 {%h20, %h21}, $a; mov.b32 $out, {%h21, %h20};"
    got = evaluate(lines, {"a": y}, "u32", {"a": "u32"})
    np.testing.assert_array_equal(got, (y << np.uint32(16)) | (y >> np.uint32(16)))
    lines = "mov.b32 {_, %h21}, $a; cvt.u32.u16 $out, %h21;"
    got = evaluate(lines, {"a": y}, "u32", {"a": "u32"})
    np.testing.assert_array_equal(got, y >> np.uint32(16))


def test_choosing_and_comparing_together() -> None:
    x, y = values("s32", 10), values("s32", 11)
    types = {"a": "s32", "b": "s32"}
    got = evaluate(
        "setp.lt.s32 %p1|%p2, $a, $b; selp.b32 $out, $a, $b, %p2;", {"a": x, "b": y}, "s32", types
    )
    np.testing.assert_array_equal(got, np.where(x >= y, x, y))
    for join, function in (("and", np.logical_and), ("or", np.logical_or)):
        got = evaluate(
            f"setp.gt.s32 %p1, $b, 7; setp.lt.{join}.s32 $out, $a, $b, !%p1;",
            {"a": x, "b": y},
            "pred",
            types,
        )
        np.testing.assert_array_equal(got.astype(bool), function(x < y, y <= 7))
    got = evaluate("set.lt.u32.s32 $out, $a, $b;", {"a": x, "b": y}, "u32", types)
    np.testing.assert_array_equal(got, np.where(x < y, 0xFFFF_FFFF, 0))
    got = evaluate("slct.s32.s32 $out, $a, $b, $a;", {"a": x, "b": y}, "s32", types)
    np.testing.assert_array_equal(got, np.where(x >= 0, x, y))


def test_constants_of_all_kinds() -> None:
    x = np.zeros(3, np.float32)
    for text, want in (("0f3FC00000", 1.5), ("0d3FF8000000000000", 1.5), ("0fFF800000", -np.inf)):
        got = evaluate(f"mov.f32 $out, {text};", {"a": x}, "f32", {"a": "f32"})
        assert got.tolist() == [want] * 3
    for text, value in (("0x10", 16), ("-3", -3), ("010", 8), ("0b101", 5), ("7U", 7)):
        got = evaluate(f"mov.b32 $out, {text};", {"a": x}, "s32", {"a": "f32"})
        assert got.tolist() == [value] * 3
