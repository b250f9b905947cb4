"""The weights of an attention layer, and the same packed for its kernels.

Input: matrices as people store them: separate, fused, or (out, in) as torch does. Output:
:class:`Weights` with (in, out) matrices, as views where the input allows it. Invariant: `check`
passed means that every array has the dtype and shape that the layer's kernels read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from attngen.call_checks import Array, admit, check_array, check_matrix
from attngen.dtypes import DType
from attngen.errors import CallTypeError, CallValueError


class LayerSizes(Protocol):
    """The sizes of a layer, as a `Spec` and an `AttentionIR` both have them."""

    @property
    def dtype(self) -> DType: ...  # noqa: D102 - described where it is defined
    @property
    def d_model(self) -> int | None: ...  # noqa: D102
    @property
    def heads(self) -> int: ...  # noqa: D102
    @property
    def kv_heads(self) -> int: ...  # noqa: D102
    @property
    def query_heads(self) -> int: ...  # noqa: D102
    @property
    def key_heads(self) -> int: ...  # noqa: D102
    @property
    def head_dim(self) -> int: ...  # noqa: D102
    @property
    def value_dim(self) -> int: ...  # noqa: D102


def projection_shapes(sizes: LayerSizes) -> dict[str, tuple[int, int]]:
    """The (in, out) shape of each projection of a layer.

    Raises:
        CallTypeError: `sizes` describes a core, which has no projections.
    """
    if sizes.d_model is None:
        raise CallTypeError("weights belong to a layer; this spec is a core (it has no 'd_model')")
    return {
        "q": (sizes.d_model, sizes.query_heads * sizes.head_dim),
        "k": (sizes.d_model, sizes.key_heads * sizes.head_dim),
        "v": (sizes.d_model, sizes.kv_heads * sizes.value_dim),
        "o": (sizes.heads * sizes.value_dim, sizes.d_model),
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """Projections of a layer: ``x @ q``, ``x @ k``, ``x @ v`` and ``heads @ o``, with biases.

    Matrices are (in, out) and may have any strides, so a transposed view is as good as a copy.

    Attributes:
        q: (d_model, heads · head_dim); `k`: (d_model, kv_heads · head_dim); twice as many heads
            of both in differential attention.
        v: (d_model, kv_heads · value_dim); `o`: (heads · value_dim, d_model).
        q_bias, k_bias, v_bias, o_bias: (out,), or None.
    """

    q: Array
    k: Array
    v: Array
    o: Array
    q_bias: Array | None = None
    k_bias: Array | None = None
    v_bias: Array | None = None
    o_bias: Array | None = None

    @classmethod
    def from_torch_layout(
        cls,
        *,
        q: Array,
        k: Array,
        v: Array,
        o: Array,
        q_bias: Array | None = None,
        k_bias: Array | None = None,
        v_bias: Array | None = None,
        o_bias: Array | None = None,
    ) -> Weights:
        """From (out, in) matrices, as in ``torch.nn.Linear.weight``; nothing is copied."""
        return cls(
            q=_turned(q, "q"),
            k=_turned(k, "k"),
            v=_turned(v, "v"),
            o=_turned(o, "o"),
            q_bias=q_bias,
            k_bias=k_bias,
            v_bias=v_bias,
            o_bias=o_bias,
        )

    @classmethod
    def from_fused(
        cls,
        qkv: Array,
        o: Array,
        sizes: LayerSizes,
        *,
        qkv_bias: Array | None = None,
        o_bias: Array | None = None,
    ) -> Weights:
        """From one (d_model, q + k + v columns) matrix; nothing is copied.

        Args:
            qkv: the columns of q, then those of k, then those of v. A torch matrix is ``w.T``.
            o: (heads · value_dim, d_model).
            sizes: the spec, or ``attention.spec``: it says where to cut.
            qkv_bias: (q + k + v columns,), or None.
            o_bias: (d_model,), or None.
        """
        shapes = projection_shapes(sizes)
        widths = [shapes[name][1] for name in ("q", "k", "v")]
        check_matrix("qkv", qkv, sizes.dtype.name, (shapes["q"][0], sum(widths)))
        cuts = [widths[0], widths[0] + widths[1]]
        q, k, v = np.split(qkv, cuts, axis=1)
        if qkv_bias is None:
            return cls(q=q, k=k, v=v, o=o, o_bias=o_bias)
        check_array("qkv_bias", qkv_bias, sizes.dtype.name, (sum(widths),))
        q_bias, k_bias, v_bias = np.split(qkv_bias, cuts)
        return cls(q=q, k=k, v=v, o=o, q_bias=q_bias, k_bias=k_bias, v_bias=v_bias, o_bias=o_bias)

    @classmethod
    def random(
        cls, sizes: LayerSizes, rng: np.random.Generator, *, biases: bool = False
    ) -> Weights:
        """Random weights that keep the magnitude of what they multiply."""
        arrays: dict[str, Array] = {}
        for name, shape in projection_shapes(sizes).items():
            matrix = rng.standard_normal(shape, dtype=np.float32) / np.sqrt(shape[0])
            arrays[name] = matrix.astype(sizes.dtype.numpy)
            if biases:
                bias = rng.standard_normal(shape[1], dtype=np.float32)
                arrays[f"{name}_bias"] = bias.astype(sizes.dtype.numpy)
        return cls(**arrays)

    def check(self, sizes: LayerSizes) -> None:
        """Check every array against a layer.

        Raises:
            CallTypeError, CallValueError: naming the array, what was expected and what came.
        """
        dtype = sizes.dtype.name
        for name, shape in projection_shapes(sizes).items():
            check_matrix(f"weights.{name}", getattr(self, name), dtype, shape)
            bias = getattr(self, f"{name}_bias")
            if bias is not None:
                check_array(f"weights.{name}_bias", bias, dtype, shape[1:])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedWeights:
    """Weights as the kernels of one package read them; biases are contiguous copies."""

    q: Array
    k: Array
    v: Array
    o: Array
    q_bias: Array | None
    k_bias: Array | None
    v_bias: Array | None
    o_bias: Array | None


def pack(weights: Weights, pack_matrix: Callable[[Array], Array]) -> PackedWeights:
    """`weights`, checked before, with each matrix packed by a package's ``pack_weight``."""
    arrays: dict[str, Array | None] = {}
    for field in fields(weights):
        array = getattr(weights, field.name)
        if field.name.endswith("_bias"):
            arrays[field.name] = None if array is None else np.array(array, order="C")
        else:
            arrays[field.name] = pack_matrix(array)
    return PackedWeights(**arrays)  # type: ignore[arg-type] # the matrices are never None


def _turned(matrix: Array, name: str) -> Array:
    if admit(name, matrix).ndim != 2:
        raise CallValueError(f"{name}: expected a matrix (out, in), got shape {matrix.shape}")
    return matrix.T
