"""The callable that `attngen.compile` hands out.

Input: a compilation. Output: :class:`CoreAttention` (``attention(q, k, v)``)
or :class:`LayerAttention` (``attention(x, weights)``). Invariants: arrays reach the kernels as they
are, or an error names the argument; a callable never changes, so that any number of threads may
call it; it pickles as its recipe, not as its code.
"""

from attngen.attention.base import Attention, Compiled, Recipe
from attngen.attention.core import CoreAttention
from attngen.attention.layer import LayerAttention


def make(compiled: Compiled) -> Attention:
    """The callable for `compiled`: a core or a layer."""
    return CoreAttention(compiled) if compiled.ir.scope == "core" else LayerAttention(compiled)


__all__ = ["Attention", "Compiled", "CoreAttention", "LayerAttention", "Recipe", "make"]
