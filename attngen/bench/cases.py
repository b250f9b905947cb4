"""A line of the benchmark: one attention with its sizes, and the spec that describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attngen.costs import Lengths


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

    @property
    def lengths(self) -> Lengths:
        """The lengths of a call."""
        from attngen.costs import Lengths  # needs NumPy, which the command line's help does not

        return Lengths(self.q_len, self.kv_len, self.batch)
