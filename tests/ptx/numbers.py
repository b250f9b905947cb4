"""Floating point as PTX defines it, on arrays: flushing, fused multiply-add, rounding, bfloat16."""

from __future__ import annotations

import numpy as np
from ptx.lanes import Array

SIGN = np.uint32(0x8000_0000)
SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


def flushed(x: Array) -> Array:
    """`.ftz`: float32 subnormals become zeros of their sign."""
    bits = x.view(np.uint32)
    subnormal = ((bits << 1) - np.uint32(1)) < np.uint32(0x00FF_FFFF)
    if subnormal.any():
        return np.where(subnormal, bits & SIGN, bits).view(np.float32)
    return x


def odd_sum(x: Array, y: Array) -> Array:
    """x + y of float64, rounded to odd: rounding that again to float32 is exact rounding."""
    total = x + y
    with_y = total - x
    error = (x - (total - with_y)) + (y - with_y)
    bits = total.view(np.int64)
    fix = (error != 0) & (bits & 1 == 0) & np.isfinite(total)
    if not fix.any():
        return total
    toward = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(fix, bits + toward, bits).view(np.float64)


def fma32(x: Array, y: Array, z: Array, rounding: str = "rn") -> Array:
    """x·y + z with one rounding. The product of two float32 is exact in float64."""
    wide = odd_sum(np.multiply(x, y, dtype=np.float64), z.astype(np.float64))
    return narrowed(wide, rounding)


def fma64(x: Array, y: Array, z: Array) -> Array:
    """x·y + z with one rounding, by Dekker's product and sums (exact far from the range's ends)."""
    product = x * y
    split = 134217729.0
    xh = x * split - (x * split - x)
    yh = y * split - (y * split - y)
    xl, yl = x - xh, y - yh
    low = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
    total = product + z
    with_z = total - product
    error = (product - (total - with_z)) + (z - with_z)
    exact = total + odd_sum(error, low)
    return np.where(np.isfinite(low) & np.isfinite(exact), exact, product + z)


def narrowed(wide: Array, rounding: str) -> Array:
    """float64 (exact, or rounded to odd) to float32 with rn, rz, rm (down) or rp (up)."""
    near = wide.astype(np.float32)
    if rounding == "rn":
        return near
    back = near.astype(np.float64)
    above, below = back > wide, back < wide
    if rounding == "rz":
        wrong = np.where(wide > 0, above, below) & np.isfinite(wide)
        step = np.zeros_like(near)
    elif rounding == "rm":
        wrong, step = above & np.isfinite(wide), np.full_like(near, -np.inf)
    elif rounding == "rp":
        wrong, step = below & np.isfinite(wide), np.full_like(near, np.inf)
    else:
        raise ValueError(f"rounding {rounding}")
    return np.where(wrong, np.nextafter(near, step), near)


def from_bfloat16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(x: Array, rounding: str = "rn") -> Array:
    """float32 to the bits of a bfloat16; NaN is 0x7fff."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    if rounding == "rz":
        rounded = bits >> 16
    else:
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16)


def to_float16(x: Array, rounding: str = "rn") -> Array:
    """float32 to float16; NaN is 0x7fff, as on the device."""
    near = x.astype(np.float16)
    if rounding == "rz":
        over = (np.abs(near.astype(np.float32)) > np.abs(x)) & ~np.isnan(x) & ~np.isinf(x)
        near = np.where(over, np.nextafter(near, np.float16(0)), near)
    quiet = np.array(0x7FFF, np.uint16).view(np.float16)
    return np.where(np.isnan(x), quiet, near)


def to_tfloat32(x: Array) -> Array:
    """float32 rounded to the 10 bits of a tf32's mantissa, ties away from zero."""
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFF_E000)
    return np.where(np.isfinite(x), rounded, bits).view(np.float32)


# Eight bits: exponent bits, mantissa bits, bias and the largest number.
EIGHT_BITS = {"e4m3": (4, 3, 7, 448.0), "e5m2": (5, 2, 15, 57344.0)}


def eight_bit_values(name: str) -> Array:
    """The value of each of the 256 patterns of e4m3 (no infinities) or e5m2, as float32."""
    exponent_bits, mantissa_bits, bias, largest = EIGHT_BITS[name]
    bits = np.arange(256)
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    fraction = mantissa / 2.0**mantissa_bits
    values = np.where(
        exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias)
    )
    if name == "e5m2":
        values = np.where(values > largest, np.where(mantissa == 0, np.inf, np.nan), values)
    else:
        values = np.where(values > largest, np.nan, values)
    return np.where(bits & 0x80, -values, values).astype(np.float32)


def to_eight_bits(x: Array, name: str) -> Array:
    """`.rn.satfinite`: to the nearest, ties to even patterns, at most the largest number."""
    table = eight_bit_values(name)[:128]
    finite = table[np.isfinite(table)].astype(np.float64)
    magnitude = np.minimum(np.abs(x.astype(np.float64)), finite[-1])
    above = np.searchsorted(finite, magnitude).clip(1, finite.size - 1)
    below = above - 1
    up, down = finite[above] - magnitude, magnitude - finite[below]
    nearest = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    nearest = np.where(np.isnan(x), 0x7F, nearest)
    return (nearest | np.where(np.signbit(x) & ~np.isnan(x), 0x80, 0)).astype(np.uint8)


def perturbed(x: Array, exact: Array, relative: float, noise: float) -> Array:
    """`exact` off by up to `noise` of a documented relative error, by a hash of the argument.

    Equal arguments get equal results, as on the device.
    """
    if not noise:
        return exact
    mixed = x.view(np.uint32) * np.uint32(0x9E37_79B1)
    mixed ^= mixed >> np.uint32(15)
    mixed = mixed * np.uint32(0x85EB_CA77)
    mixed ^= mixed >> np.uint32(13)
    unit = mixed.astype(np.float64) / 2.0**31 - 1.0
    return exact * (1.0 + unit * relative * noise)
