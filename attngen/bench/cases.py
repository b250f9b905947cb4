"""A line of the benchmark: one attention with its sizes, and the data it is given.

Output: frozen :class:`Case` values, the spec mapping that `attngen.compile` takes for each, and
:func:`make_data`, which fills its inputs with reproducible normal numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Case:
    """One line: float32, `causal` meaning bottom right, `window` counting the query's own key.

    Attributes:
        label: what the line is called in a table.
        window: keys a row sees at most, itself included; None is no window. Causal cases only.
        d_model: width of a whole layer with its projections; None is the attention alone.
    """

    label: str
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    causal: bool = False
    window: int | None = None
    d_model: int | None = None
    batch: int = 1

    @property
    def spec(self) -> dict[str, object]:
        """The spec of this case."""
        spec: dict[str, object] = {
            "name": "bench_case",
            "scope": "core" if self.d_model is None else "layer",
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "causal": self.causal,
        }
        if self.d_model is not None:
            spec["d_model"] = self.d_model
        if self.window is not None:
            spec["window"] = {"left": self.window - 1, "right": 0}
        return spec


@dataclass(frozen=True, slots=True)
class CoreData:
    """Inputs of a core: q (B, q_len, heads, head_dim), k and v (B, kv_len, kv_heads, head_dim)."""

    q: Array
    k: Array
    v: Array


@dataclass(frozen=True, slots=True)
class LayerData:
    """Inputs of a layer: x (B, S, d_model) and weights as (in, out) matrices."""

    x: Array
    w_q: Array
    w_k: Array
    w_v: Array
    w_o: Array


Data = CoreData | LayerData


def make_data(case: Case, seed: int = 0) -> Data:
    """Inputs for `case`; weights are scaled so that every layer keeps unit variance."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 1.0) -> Array:
        array = rng.standard_normal(shape, dtype=np.float32)
        array *= np.float32(scale)
        return array

    if case.d_model is None:
        q = normal(case.batch, case.q_len, case.heads, case.head_dim)
        kv_shape = (case.batch, case.kv_len, case.kv_heads, case.head_dim)
        return CoreData(q, normal(*kv_shape), normal(*kv_shape))
    wide, narrow = case.heads * case.head_dim, case.kv_heads * case.head_dim
    return LayerData(
        normal(case.batch, case.q_len, case.d_model),
        normal(case.d_model, wide, scale=case.d_model**-0.5),
        normal(case.d_model, narrow, scale=case.d_model**-0.5),
        normal(case.d_model, narrow, scale=case.d_model**-0.5),
        normal(wide, case.d_model, scale=wide**-0.5),
    )
