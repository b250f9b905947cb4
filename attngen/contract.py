"""The numeric contract of a compiled attention, as lines that explain, headers and docs share."""

from __future__ import annotations

from attngen.ir.attention import AttentionIR


def contract(ir: AttentionIR) -> tuple[str, ...]:
    """What a caller may rely on for `ir`, one fact a line."""
    digits = "float64" if ir.dtype.accumulator == "float64" else "float32"
    aligned = {
        "bottom_right": "query i of q_len stands at position kv_len - q_len + i",
        "top_left": "query i stands at position i",
    }[ir.alignment]
    lines = [
        "order: scale, score, softcap, mask, softmax" + (" with sink" if ir.sink else "") + ", sum",
        f"positions: {aligned}; key j stands at j",
        "a row that may attend to nothing gives exactly 0 and an LSE of -inf",
        "query head h reads kv head h // (heads / kv_heads)"
        + f" = h // {ir.group}" * (ir.group > 1),
        f"products and sums are kept in {digits}; no fast-math",
        "LSE is the natural logarithm of the sum of exp(score) over the keys attended to",
        "NaN and infinities of a key reach only the rows that attend to it",
        "results do not depend on the number of threads, nor on what else is in the batch",
        "a row's bits may differ between the prefill and the short-query kernel",
    ]
    if ir.sink:
        lines.insert(6, "the sink joins the softmax denominator and is not part of the LSE")
    return tuple(lines)
