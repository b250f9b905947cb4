"""The middle end: small rewrites of AttentionIR, and the order in which they run.

Input: a valid AttentionIR as `elaborate` makes it; output: a valid one that computes the same, in
base 2, with linear factors of `dot` in `query_scale` and the mask in canonical form. A pass that
has nothing to do returns the object it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attngen.ir.attention import AttentionIR
from attngen.passes.exp2_form import Exp2Form
from attngen.passes.fold_constants import FoldConstants
from attngen.passes.fold_scale import FoldScale
from attngen.passes.keep_finite import KeepFinite
from attngen.passes.normalise_mask import NormaliseMask

Pass: TypeAlias = Callable[[AttentionIR], AttentionIR]
Observer: TypeAlias = Callable[[str, AttentionIR, AttentionIR], None]

PIPELINE: tuple[Pass, ...] = (
    KeepFinite(),  # before numbers grow by log2(e)
    Exp2Form(),  # early, so that log2(e) is one more constant for the others to merge
    FoldConstants(),  # a score that reads factor * f(dot) shows its factor
    FoldScale(),  # needs that factor beside `dot`
    NormaliseMask(),  # touches nothing that the others read
)


def simplify(ir: AttentionIR, observe: Observer | None = None) -> AttentionIR:
    """`ir` after every pass of :data:`PIPELINE`.

    Args:
        ir: a valid IR; one that is simplified already comes back as it is.
        observe: called after each pass with its name, and the IR before and after it (the same
            object if nothing changed); for printing, timing and verification.
    """
    for rewrite in PIPELINE:
        before, ir = ir, rewrite(ir)
        if observe is not None:
            observe(type(rewrite).__name__, before, ir)
    return ir
