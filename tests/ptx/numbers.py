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
