"""Integer instructions against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulator.assemble import Array, evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx.module import dtype_of

LANES = 70
CORNERS = (0, 1, 2, 3, 31, 32, 33, 63, 64, 255, 256, 0x7FFF_FFFF, 0x8000_0000, -1, -2, 1 << 63)


def values(type_name: str, seed: int) -> Array:
    """Corners and random numbers of all magnitudes, as `type_name`."""
    rng = np.random.default_rng(seed)
    bits = 8 * dtype_of(type_name).itemsize
    drawn = [
        int(x) >> int(s)
        for x, s in zip(rng.integers(0, 1 << 63, LANES), rng.integers(0, 63, LANES), strict=True)
    ]
    signs = rng.integers(0, 2, LANES)
    numbers = [*CORNERS, *((-x if s else x) for x, s in zip(drawn, signs, strict=True))]
    rng.shuffle(numbers)
    masked = [int(x) & ((1 << bits) - 1) for x in numbers]
    return np.array(masked, f"u{bits // 8}").view(dtype_of(type_name))


def wrapped(number: int, type_name: str) -> int:
    bits = 8 * dtype_of(type_name).itemsize
    number &= (1 << bits) - 1
    signed = dtype_of(type_name).kind == "i" and number >> (bits - 1)
    return number - (1 << bits) if signed else number


def quotient(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def check(
    instruction: str, types: list[str], result: str, oracle: Callable[..., int], seed: int
) -> None:
    """`instruction` applied to columns of `types`, against `oracle` of Python integers."""
    names = ["a", "b", "c", "d"][: len(types)]
    inputs = {n: values(t, seed + i) for i, (n, t) in enumerate(zip(names, types, strict=True))}
    operands = ", ".join(f"${n}" for n in names)
    got = evaluate(
        f"{instruction} $out, {operands};", inputs, result, dict(zip(names, types, strict=True))
    )
    rows = zip(*(x.tolist() for x in inputs.values()), strict=True)
    want = np.array([wrapped(oracle(*row), result) for row in rows], dtype_of(result))
    np.testing.assert_array_equal(got, want, err_msg=instruction)


BINARY: dict[str, Callable[[int, int], int]] = {
    "add.{t}": lambda x, y: x + y,
    "sub.{t}": lambda x, y: x - y,
    "mul.lo.{t}": lambda x, y: x * y,
    "min.{t}": min,
    "max.{t}": max,
    "and.b{w}": lambda x, y: x & y,
    "or.b{w}": lambda x, y: x | y,
    "xor.b{w}": lambda x, y: x ^ y,
}


@pytest.mark.parametrize("type_name", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("form", BINARY)
def test_two_operands(form: str, type_name: str) -> None:
    width = 8 * dtype_of(type_name).itemsize
    check(form.format(t=type_name, w=width), [type_name] * 2, type_name, BINARY[form], 7)


@pytest.mark.parametrize("type_name", ["u32", "s32", "u64", "s64"])
def test_division_goes_toward_zero(type_name: str) -> None:
    def nonzero(seed: int) -> Array:
        column = values(type_name, seed)
        return np.where(column == 0, 3, column).astype(column.dtype)

    x, y = values(type_name, 1), nonzero(2)
    keep = ~((x == np.iinfo(x.dtype).min) & (y == np.array(-1).astype(y.dtype)))
    x, y = x[keep], y[keep]
    types = {"a": type_name, "b": type_name}
    got = evaluate(f"div.{type_name} $out, $a, $b;", {"a": x, "b": y}, type_name, types)
    rest = evaluate(f"rem.{type_name} $out, $a, $b;", {"a": x, "b": y}, type_name, types)
    want = [quotient(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert got.tolist() == want
    assert rest.tolist() == [
        a - q * b for a, b, q in zip(x.tolist(), y.tolist(), want, strict=True)
    ]


@pytest.mark.parametrize("type_name", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_high_half_of_a_product(type_name: str) -> None:
    bits = 8 * dtype_of(type_name).itemsize
    check(f"mul.hi.{type_name}", [type_name] * 2, type_name, lambda x, y: (x * y) >> bits, 3)


@pytest.mark.parametrize(
    ("narrow", "wide"), [("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")]
)
def test_wide_products(narrow: str, wide: str) -> None:
    check(f"mul.wide.{narrow}", [narrow] * 2, wide, lambda x, y: x * y, 4)
    check(f"mad.wide.{narrow}", [narrow, narrow, wide], wide, lambda x, y, z: x * y + z, 5)


@pytest.mark.parametrize("type_name", ["u32", "s32", "u64", "s64"])
def test_multiply_and_add(type_name: str) -> None:
    bits = 8 * dtype_of(type_name).itemsize
    check(f"mad.lo.{type_name}", [type_name] * 3, type_name, lambda x, y, z: x * y + z, 6)
    check(
        f"mad.hi.{type_name}", [type_name] * 3, type_name, lambda x, y, z: ((x * y) >> bits) + z, 6
    )


@pytest.mark.parametrize("type_name", ["s16", "s32", "s64"])
def test_one_operand(type_name: str) -> None:
    width = 8 * dtype_of(type_name).itemsize
    check(f"neg.{type_name}", [type_name], type_name, lambda x: -x, 8)
    check(f"abs.{type_name}", [type_name], type_name, abs, 8)
    check(f"not.b{width}", [type_name], type_name, lambda x: ~x, 8)
    check(f"cnot.b{width}", [type_name], type_name, lambda x: int(x == 0), 8)


@pytest.mark.parametrize("type_name", ["b16", "u32", "s32", "u64", "s64"])
def test_shifts_by_any_amount(type_name: str) -> None:
    bits = 8 * dtype_of(type_name).itemsize
    check(
        f"shl.b{bits}", [f"u{bits}", "u32"], f"u{bits}",
        lambda x, n: x << n if n < bits else 0, 9,
    )  # fmt: skip
    shr = type_name if type_name != "b16" else "u16"
    check(f"shr.{shr}", [shr, "u32"], shr, lambda x, n: x >> min(n, bits), 10)


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), mode=st.sampled_from(["wrap", "clamp"]))
def test_funnel_shifts(seed: int, mode: str) -> None:
    def amount(n: int) -> int:
        return n & 31 if mode == "wrap" else min(n, 32)

    def left(low: int, high: int, n: int) -> int:
        return (((high << 32) | low) << amount(n)) >> 32

    def right(low: int, high: int, n: int) -> int:
        return ((high << 32) | low) >> amount(n)

    check(f"shf.l.{mode}.b32", ["u32"] * 3, "u32", left, seed)
    check(f"shf.r.{mode}.b32", ["u32"] * 3, "u32", right, seed)


def extracted(x: int, position: int, length: int, bits: int, signed: bool) -> int:
    """The pseudo-code of the ISA, bit by bit."""
    start, count = position & 0xFF, length & 0xFF
    pattern = x & ((1 << bits) - 1)
    last = min(start + count - 1, bits - 1)
    sign = pattern >> last & 1 if signed and count else 0
    result = 0
    for i in range(bits):
        inside = i < count and start + i < bits
        bit = pattern >> (start + i) & 1 if inside else sign
        result |= bit << i
    return result


@pytest.mark.parametrize("type_name", ["u32", "s32", "u64", "s64"])
@settings(max_examples=15)
@given(seed=st.integers(0, 1000))
def test_bit_fields_are_extracted(type_name: str, seed: int) -> None:
    bits, signed = 8 * dtype_of(type_name).itemsize, type_name[0] == "s"
    check(
        f"bfe.{type_name}", [type_name, "u32", "u32"], type_name,
        lambda x, p, n: extracted(x, p, n, bits, signed), seed,
    )  # fmt: skip


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), bits=st.sampled_from([32, 64]))
def test_bit_fields_are_inserted(seed: int, bits: int) -> None:
    def inserted(field: int, into: int, position: int, length: int) -> int:
        start, count = position & 0xFF, length & 0xFF
        for i in range(min(count, max(bits - start, 0))):
            into = into & ~(1 << (start + i)) | (field >> i & 1) << (start + i)
        return into

    wide = f"u{bits}"
    check(f"bfi.b{bits}", [wide, wide, "u32", "u32"], wide, inserted, seed)


@pytest.mark.parametrize("table", [0x00, 0x80, 0x96, 0xCA, 0xE8, 0x6A, 0xFE, 0xFF])
def test_logic_by_table(table: int) -> None:
    x, y, z = (values("u32", s) for s in (1, 2, 3))
    types = dict.fromkeys("abc", "u32")
    got = evaluate(f"lop3.b32 $out, $a, $b, $c, {table};", {"a": x, "b": y, "c": z}, "u32", types)
    for bit in range(32):
        column = [v >> np.uint32(bit) & 1 for v in (x, y, z, got)]
        row = column[0] * 4 + column[1] * 2 + column[2]
        np.testing.assert_array_equal(column[3], table >> row & 1)


def test_bytes_are_permuted() -> None:
    def permuted(a: int, b: int, selector: int) -> int:
        both = (b << 32 | a).to_bytes(8, "little")
        result = 0
        for i in range(4):
            pick = selector >> 4 * i & 0xF
            byte = both[pick & 7]
            result |= (byte if pick < 8 else 0xFF * (byte >> 7)) << 8 * i
        return result

    check("prmt.b32", ["u32", "u32", "u32"], "u32", permuted, 11)


@pytest.mark.parametrize("bits", [32, 64])
def test_bits_are_counted(bits: int) -> None:
    name, top = f"u{bits}", bits - 1
    check(f"popc.b{bits}", [name], "u32", lambda x: x.bit_count(), 12)
    check(f"clz.b{bits}", [name], "u32", lambda x: bits - x.bit_length(), 12)
    check(f"brev.b{bits}", [name], name, lambda x: int(f"{x:0{bits}b}"[::-1], 2), 12)
    check(f"bfind.u{bits}", [name], "u32", lambda x: x.bit_length() - 1, 12)
    check(
        f"bfind.shiftamt.u{bits}", [name], "u32",
        lambda x: top - (x.bit_length() - 1) if x else -1, 12,
    )  # fmt: skip
    check(
        f"bfind.s{bits}", [f"s{bits}"], "u32",
        lambda x: (~x if x < 0 else x).bit_length() - 1, 12,
    )  # fmt: skip


def test_sums_that_saturate() -> None:
    low, high = -(1 << 31), (1 << 31) - 1

    def clipped(x: int) -> int:
        return max(low, min(high, x))

    check("add.sat.s32", ["s32"] * 2, "s32", lambda x, y: clipped(x + y), 13)
    check("sub.sat.s32", ["s32"] * 2, "s32", lambda x, y: clipped(x - y), 13)


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


@pytest.mark.parametrize("name", COMPARE)
@pytest.mark.parametrize("type_name", ["u32", "s32", "u64", "s64", "u16", "s16"])
def test_comparisons(name: str, type_name: str) -> None:
    x, y = values(type_name, 14), values(type_name, 15)
    x = np.where(np.arange(x.size) % 5 == 0, y, x)
    types = {"a": type_name, "b": type_name}
    got = evaluate(f"setp.{name}.{type_name} $out, $a, $b;", {"a": x, "b": y}, "pred", types)
    want = [COMPARE[name](a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert got.astype(bool).tolist() == want
