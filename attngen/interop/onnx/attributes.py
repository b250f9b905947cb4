"""The attributes of ONNX's Attention, typed, and the types of its inputs.

Input: attribute names and values as a node has them. Output: :class:`AttentionAttributes`.
Invariant: what is left out or says its default is equal to what is not given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attngen.interop.onnx.translation import FLOATS, unmapped

_NAMES = (
    "is_causal",
    "scale",
    "softcap",
    "q_num_heads",
    "kv_num_heads",
    "softmax_precision",
    "qk_matmul_output_mode",
    "left_window_size",
    "right_window_size",
)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type (a NumPy name) and shape; a size is a number, a symbol, or None if unknown."""

    dtype: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class AttentionAttributes:
    """What an Attention node of opset 23 to 25 says.

    Attributes:
        scale: factor of q·k; None is 1/sqrt(head_size), as is a scale of 0 in a node.
        softcap: None is off.
        q_num_heads, kv_num_heads: given where inputs have three axes.
        softmax_precision: the NumPy name of the type that the softmax runs in, if given.
        qk_matmul_output_mode: 0 scaled products, 1 after the softcap, 2 after bias and masks,
            3 after the softmax.
        left_window_size, right_window_size: neighbours kept on each side; -1 is open.
    """

    is_causal: bool = False
    scale: float | None = None
    softcap: float | None = None
    q_num_heads: int | None = None
    kv_num_heads: int | None = None
    softmax_precision: str | None = None
    qk_matmul_output_mode: int = 0
    left_window_size: int = -1
    right_window_size: int = -1

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> AttentionAttributes:
        """The attributes of a node by their names.

        Raises:
            SpecError: one is unknown, or has no meaning.
        """
        for name in given:
            if name not in _NAMES:
                raise unmapped(name, f"Attention has no attribute {name!r}", _known())
        return cls(
            is_causal=_one_of(given, "is_causal", (0, 1), 0) == 1,
            scale=scale_of(given),
            softcap=_softcap(given),
            q_num_heads=_heads(given, "q_num_heads"),
            kv_num_heads=_heads(given, "kv_num_heads"),
            softmax_precision=precision_of(given),
            qk_matmul_output_mode=_one_of(given, "qk_matmul_output_mode", (0, 1, 2, 3), 0),
            left_window_size=_window(given, "left_window_size"),
            right_window_size=_window(given, "right_window_size"),
        )

    @property
    def looks_around(self) -> bool:
        """Whether positions matter: there is a causal mask or a window."""
        return self.is_causal or self.left_window_size >= 0 or self.right_window_size >= 0


def scale_of(given: Mapping[str, Any], *, zero_is_default: bool = True) -> float | None:
    """The factor of q·k; None where it is 1/sqrt(head_size)."""
    value = given.get("scale")
    if value is None or (zero_is_default and value == 0):
        return None
    if not math.isfinite(value) or value < 0:
        hint = "the operator multiplies q and k by its square root each"
        raise unmapped("scale", f"'scale' must be a number from 0, not {value}", hint)
    return float(value)


def precision_of(given: Mapping[str, Any]) -> str | None:
    """The NumPy name of the type in which the softmax is asked for."""
    value = given.get("softmax_precision")
    if value is None:
        return None
    if value not in FLOATS:
        names = ", ".join(f"{number} ({name})" for number, name in FLOATS.items())
        message = f"'softmax_precision' must be a float type of ONNX, not {value!r}"
        raise unmapped("softmax_precision", message, f"use one of {names}")
    return FLOATS[value]


def _known() -> str:
    return f"the attributes are {', '.join(_NAMES)}"


def _one_of(given: Mapping[str, Any], name: str, values: tuple[int, ...], default: int) -> int:
    value = given.get(name, default)
    if value not in values:
        raise unmapped(name, f"{name!r} must be one of {values}, not {value!r}")
    return int(value)


def _softcap(given: Mapping[str, Any]) -> float | None:
    value = given.get("softcap", 0.0)
    if not math.isfinite(value) or value < 0:
        message = f"'softcap' must be a number from 0, not {value}"
        raise unmapped("softcap", message, "0 is no softcap")
    return float(value) or None


def _heads(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is not None and value < 1:
        raise unmapped(name, f"{name!r} must be positive, not {value}")
    return None if value is None else int(value)


def _window(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name, -1)
    if value < -1:
        raise unmapped(name, f"{name!r} must be -1 (open) or a count of neighbours, not {value}")
    return int(value)
