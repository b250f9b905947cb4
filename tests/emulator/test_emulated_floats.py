"""Floating-point instructions against exact rational arithmetic, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from emulator.assemble import Array, evaluate, kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx.launch import launch
from ptx.memory import GlobalMemory

LANES = 60
TINY = float(np.finfo(np.float32).tiny)
CORNERS = (0.0, -0.0, 1.0, -1.0, 1 + 2.0**-23, 3.0, 2.0**-149, -(2.0**-149), TINY, -TINY, 2.0**127)
SPECIAL = (math.inf, -math.inf, math.nan)


def rounded(x: Fraction, mode: str = "rn", digits: int = 24, lowest: int = -149) -> float:
    """`x` as a binary float of `digits` bits whose unit is at least 2^lowest (no overflow)."""
    if x == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(x)))
    while Fraction(2) ** exponent > abs(x):
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= abs(x):
        exponent += 1
    unit = Fraction(2) ** max(exponent - digits + 1, lowest)
    scaled = x / unit
    down = scaled.numerator // scaled.denominator
    rest = scaled - down
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1)
    elif mode == "rz":
        up = rest > 0 and x < 0
    else:
        up = rest > 0 and mode == "rp"
    return float((down + up) * unit)


def numbers(seed: int, spread: int = 30) -> Array:
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal(LANES) * 2.0 ** rng.integers(-spread, spread, LANES)
    values = np.array([*CORNERS, *drawn], np.float32)
    rng.shuffle(values)
    return values


def compute(instruction: str, *columns: Array, type_name: str = "f32") -> Array:
    names = ["a", "b", "c"][: len(columns)]
    operands = ", ".join(f"${n}" for n in names)
    inputs = dict(zip(names, columns, strict=True))
    types = dict.fromkeys(names, type_name)
    return evaluate(f"{instruction} $out, {operands};", inputs, type_name, types)


EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "fma": lambda x, y, z: x * y + z,
}


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("operation", EXACT)
@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_results_are_rounded_once(operation: str, mode: str, seed: int) -> None:
    count = 3 if operation == "fma" else 2
    columns = [numbers(seed + i, 20).clip(-(2.0**60), 2.0**60) for i in range(count)]
    if operation == "fma":  # what cancels shows whether the product was rounded
        third = -(columns[0].astype(np.float64) * columns[1]).astype(np.float32)
        columns[2] = np.where(np.arange(third.size) % 2, third, columns[2])
    got = compute(f"{operation}.{mode}.f32", *columns)
    exact = [
        EXACT[operation](*map(Fraction, row))
        for row in zip(*(c.tolist() for c in columns), strict=True)
    ]
    want = [rounded(x, mode) for x in exact]
    assert got.tolist() == want


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_double_precision_fma_is_rounded_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, LANES))
    z = np.where(rng.random(LANES) < 0.5, -x * y, rng.standard_normal(LANES))
    got = compute("fma.rn.f64", x, y, z, type_name="f64")
    want = [
        rounded(Fraction(a) * Fraction(b) + Fraction(c), "rn", 53, -1074)
        for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    assert got.tolist() == want


def test_fma_where_two_roundings_would_be_wrong() -> None:
    x = np.array([1 + 2.0**-12], np.float32)
    y = np.array([1 + 2.0**-12], np.float32)
    z = np.array([2.0**-80], np.float32)  # decides which way the middle of two floats goes
    exact = Fraction(float(x[0])) * Fraction(float(y[0])) + Fraction(2.0**-80)
    assert compute("fma.rn.f32", x, y, z)[0] == rounded(exact)
    assert np.float32(float(x[0]) * float(y[0]) + float(z[0])) != rounded(exact)


@pytest.mark.parametrize("operation", ["add", "mul", "fma.rn", "max", "min", "neg", "abs"])
def test_flushing_takes_subnormals_for_zeros(operation: str) -> None:
    count = {"neg": 1, "abs": 1, "fma.rn": 3}.get(operation, 2)
    columns = [np.array([2.0**-130, -(2.0**-130), 2.0**-149, 1.0], np.float32)] * count
    flushed = [np.where(np.abs(c) < TINY, np.copysign(0, c), c).astype(np.float32) for c in columns]
    got = compute(f"{operation}.ftz.f32", *columns)
    want = compute(f"{operation}.f32", *flushed)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def test_flushing_results() -> None:
    x = np.array([TINY, -TINY, TINY], np.float32)
    half = np.array([0.5, 0.5, 1.0], np.float32)
    got = compute("mul.ftz.f32", x, half)
    assert got.view(np.uint32).tolist() == [0, 0x8000_0000, x.view(np.uint32)[2]]
    assert compute("mul.f32", x, half).tolist() == [TINY / 2, -TINY / 2, TINY]


@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes_of_zeros_and_nan(name: str) -> None:
    x = np.array([0.0, -0.0, np.nan, 2.0, np.nan, -1.0], np.float32)
    y = np.array([-0.0, 0.0, 1.0, np.nan, np.nan, 5.0], np.float32)
    got = compute(f"{name}.f32", x, y)
    zero = -0.0 if name == "min" else 0.0
    want = np.array([zero, zero, 1, 2, np.nan, -1 if name == "min" else 5], np.float32)
    np.testing.assert_array_equal(got, want)
    assert (np.signbit(got[:2]) == np.signbit(want[:2])).all()
    strict = compute(f"{name}.NaN.f32", x, y)
    assert np.isnan(strict).tolist() == [False, False, True, True, True, False]


def test_saturation() -> None:
    x = np.array([-1.0, 0.25, 3.0, np.nan, np.inf], np.float32)
    got = compute("add.sat.f32", x, np.zeros_like(x))
    assert got.tolist() == [0.0, 0.25, 1.0, 0.0, 1.0]


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_division_and_roots_are_rounded_once(seed: int) -> None:
    x, y = numbers(seed), numbers(seed + 1)
    y = np.where(y == 0, np.float32(7), y)
    got = compute("div.rn.f32", x, y)
    sure = np.abs(got) < 1e30
    want = [
        rounded(Fraction(a) / Fraction(b)) if s else g
        for a, b, g, s in zip(x.tolist(), y.tolist(), got.tolist(), sure, strict=True)
    ]
    assert got.tolist() == want
    inverse = compute("rcp.rn.f32", y)
    some = np.abs(inverse) < 1e30
    want = [
        rounded(1 / Fraction(b)) if s else g
        for b, g, s in zip(y.tolist(), inverse.tolist(), some, strict=True)
    ]
    assert inverse.tolist() == want
    root = compute("sqrt.rn.f32", np.abs(x))
    np.testing.assert_array_equal(root, np.sqrt(np.abs(x)))


APPROXIMATE: dict[str, tuple[Callable[[Array], Array], float]] = {
    "ex2.approx.ftz.f32": (np.exp2, 2.0**-22),
    "lg2.approx.ftz.f32": (np.log2, 2.0**-22),
    "rcp.approx.ftz.f32": (lambda x: 1 / x, 2.0**-23),
    "rsqrt.approx.ftz.f32": (lambda x: 1 / np.sqrt(x), 2.0**-22.9),
    "sqrt.approx.ftz.f32": (np.sqrt, 2.0**-23),
    "tanh.approx.f32": (np.tanh, 2.0**-11),
}


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximations_show_no_more_than_their_documented_error(name: str) -> None:
    function, error = APPROXIMATE[name]
    x = np.abs(np.random.default_rng(3).standard_normal(4096)).astype(np.float32) * 8 + 2.0
    results = []
    for noise in (0.0, 1.0):
        memory = GlobalMemory()
        source, out = memory.place(x), memory.reserve(x.shape, np.float32)
        body = f"""
            mov.u32 %r1, %ctaid.x;
            mov.u32 %r2, %tid.x;
            mad.lo.s32 %r3, %r1, 128, %r2;
            mul.wide.u32 %d1, %r3, 4;
            ld.param.u64 %d2, [x];
            ld.param.u64 %d3, [y];
            add.s64 %d2, %d2, %d1;
            add.s64 %d3, %d3, %d1;
            ld.global.f32 %f1, [%d2];
            {name} %f2, %f1;
            st.global.f32 [%d3], %f2;
            ret;"""
        ptx = kernel(body, ["u64 x", "u64 y"])
        launch(
            ptx,
            memory,
            grid=(32,),
            block=(128,),
            arguments=[source, out],
            outputs=[out],
            noise=noise,
        ).check()
        results.append(memory.read(out))
    exact, noisy = results
    want = function(x.astype(np.float64))
    np.testing.assert_array_equal(exact, want.astype(np.float32))
    off = np.abs(noisy - want) / np.abs(want)
    assert off.max() <= error + 2.0**-24
    assert off.max() > error / 2, "the error shows"


def test_gross_approximations_in_double_precision() -> None:
    x = np.array([3.0, -7.0, 1e300, 1e-310, 0.0, np.inf, 1.0 + 2.0**-40])
    got = compute("rcp.approx.ftz.f64", x, type_name="f64")
    assert (got.view(np.uint64) & np.uint64(0xFFFF_FFFF) == 0).all()
    np.testing.assert_allclose(got[:3], 1 / x[:3], rtol=2.0**-20)
    assert got[3:].tolist() == [np.inf, np.inf, 0.0, 1.0]
    root = compute("rsqrt.approx.ftz.f64", x[:1], type_name="f64")
    np.testing.assert_allclose(root, 3.0**-0.5, rtol=2.0**-20)


def test_limits_of_approximations() -> None:
    x = np.array([-np.inf, np.inf, 0.0, -0.0, np.nan, -200.0], np.float32)
    np.testing.assert_array_equal(
        compute("ex2.approx.ftz.f32", x), np.array([0, np.inf, 1, 1, np.nan, 0], np.float32)
    )
    with np.errstate(all="ignore"):
        want = (1 / x.astype(np.float32)).astype(np.float32)
    np.testing.assert_array_equal(compute("rcp.approx.ftz.f32", x), want)
    logs = compute("lg2.approx.ftz.f32", np.array([0.0, np.inf, -1.0, 1.0, 2.0], np.float32))
    np.testing.assert_array_equal(logs, np.array([-np.inf, np.inf, np.nan, 0, 1], np.float32))


@pytest.mark.parametrize(
    "name", ["lt", "le", "gt", "ge", "eq", "ne", "ltu", "geu", "equ", "neu", "num", "nan"]
)
def test_comparisons_with_nan(name: str) -> None:
    x = np.array([1, 2, 2, np.nan, 1, np.nan, -0.0], np.float32)
    y = np.array([2, 1, 2, 1, np.nan, np.nan, 0.0], np.float32)
    got = evaluate(
        f"setp.{name}.f32 $out, $a, $b;", {"a": x, "b": y}, "pred", {"a": "f32", "b": "f32"}
    ).astype(bool)
    nan = np.isnan(x) | np.isnan(y)
    if name in ("num", "nan"):
        want = nan if name == "nan" else ~nan
    else:
        base = name.rstrip("u") if name.endswith("u") else name
        compare = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
                   "eq": np.equal, "ne": np.not_equal}[base]  # fmt: skip
        want = np.where(nan, name.endswith("u"), compare(x, y))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "fma.rn", "max", "min"])
@pytest.mark.parametrize("type_name", ["f16x2", "bf16x2"])
@settings(max_examples=12)
@given(seed=st.integers(0, 1000))
def test_packed_halves_are_rounded_once(operation: str, type_name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 3 if operation == "fma.rn" else 2
    halves = rng.standard_normal((count, 2 * LANES)).astype(np.float16)
    if type_name == "bf16x2":
        bits = (halves.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        values = (bits.astype(np.uint32) << 16).view(np.float32)
    else:
        bits, values = halves.view(np.uint16), halves.astype(np.float32)
    columns = [np.ascontiguousarray(row).view(np.uint32) for row in bits]
    got = compute(f"{operation}.{type_name}", *columns, type_name="b32").view(np.uint16)
    digits, lowest = (8, -133) if type_name == "bf16x2" else (11, -24)
    oracle = EXACT.get(operation.partition(".")[0]) or {"max": max, "min": min}[operation]
    rows = zip(*(v.tolist() for v in values), strict=True)
    want = [rounded(oracle(*map(Fraction, row)), "rn", digits, lowest) for row in rows]
    if type_name == "bf16x2":
        shown = (got.astype(np.uint32) << 16).view(np.float32)
    else:
        shown = got.view(np.float16).astype(np.float32)
    assert shown.tolist() == want
