"""What pictures cannot show yet: said at once, rather than drawn wrongly.

Input: an AttentionIR. Output: nothing, or an error that names the key.
"""

from __future__ import annotations

from attngen.errors import Diagnostic, SpecError
from attngen.ir.attention import AttentionIR


def require_one_map(ir: AttentionIR) -> None:
    """Refuse differential attention, whose heads have two maps.

    Raises:
        SpecError: `ir` has a difference.
    """
    if ir.difference is not None:
        message = "a picture shows one map for each head, and 'differential' makes two"
        hint = "take out 'differential' to see one of them"
        raise SpecError([Diagnostic("E-PICTURE", message, key="differential", hint=hint)])
