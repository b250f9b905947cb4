"""The numeric contract of a compiled attention, as lines that explain, headers and docs share."""

from __future__ import annotations

from attngen.ir.attention import AttentionIR
from attngen.ir.printer import expression_text


def contract(ir: AttentionIR) -> tuple[str, ...]:
    """What a caller may rely on for `ir`, one fact a line."""
    digits = "float64" if ir.dtype.accumulator == "float64" else "float32"
    aligned = {
        "bottom_right": "query i of q_len stands at position kv_len - q_len + i",
        "top_left": "query i stands at position i",
    }[ir.alignment]
    weights = "softmax with sink" if ir.sink else "softmax"
    if ir.off_by_one:
        weights = "softmax off by one"
    empty = "a row that may attend to nothing gives exactly 0 and an LSE of -inf"
    if ir.activation is not None:
        weights, empty = "activation", "a row that may attend to nothing gives exactly 0"
    lines = [
        f"order: scale, score, softcap, mask, {weights}, sum",
        f"positions: {aligned}; key j stands at j",
        empty,
        _heads(ir),
        f"products and sums are kept in {digits}; no fast-math",
        _sums(ir),
        "NaN and infinities of a key reach all rows that attend to it, however small its weight, "
        "and no other",
        _terms(ir),
        "results do not depend on the number of threads, nor on what else is in the batch",
        "a row's bits may differ between the prefill and the short-query kernel",
    ]
    if ir.sink:
        lines.insert(6, "the sink joins the softmax denominator and is not part of the LSE")
    if ir.off_by_one:
        lines.insert(6, "the one in the softmax denominator is not part of the LSE")
    if ir.dtype.is_half:
        lines.insert(5, _halves(ir))
    return tuple(lines)


def _terms(ir: AttentionIR) -> str:
    hidden = "-inf in a mask array hides a key"
    if ir.activation is not None:
        return hidden
    most = f"{ir.largest_term:g}".replace("+", "")
    return f"{hidden}; finite numbers that are added to a score count as at most {most} in size"


def _heads(ir: AttentionIR) -> str:
    group = f"// (heads / kv_heads){f' = h // {ir.group}' * (ir.group > 1)}"
    if ir.difference is None:
        return f"query head h reads kv head h {group}"
    factor = expression_text(ir.difference)
    return (
        f"head h is the map of query head 2h less {factor} times that of 2h + 1, which read key "
        f"heads 2j and 2j + 1 and value head j = h {group}; each map has an LSE"
    )


def _sums(ir: AttentionIR) -> str:
    if ir.activation is None:
        return "LSE is the natural logarithm of the sum of exp(score) over the keys attended to"
    weight = expression_text(ir.activation)
    return f"a weight is {weight}, for each key by itself; there is no LSE"


def _halves(ir: AttentionIR) -> str:
    name = ir.dtype.name
    if ir.scope == "core":
        return f"q, k and v are read exactly; out is rounded once, to the nearest {name}"
    return (
        "x and weights are read exactly; all between the projections is float32; the result is "
        f"rounded once, to the nearest {name}"
    )
