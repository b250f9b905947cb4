"""The intermediate representations as text that a person reads: one place, one look.

Input: an expression, AttentionIR, schedule or KernelIR. Output: text without a final newline. The
text of an expression is Python and has the structure of its tree; equal values give equal texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from attngen.ir.attention import AttentionIR
from attngen.ir.expr import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
)
from attngen.ir.kernel import (
    FlashForward,
    GridForward,
    Kernel,
    KernelIR,
    MaskPlan,
    Projection,
    SplitKV,
)
from attngen.ir.schedule import Schedule

_INFIX: dict[BinaryOp, tuple[str, int]] = {
    "or": ("or", 1),
    "and": ("and", 2),
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "eq": ("==", 4),
    "ne": ("!=", 4),
    "add": ("+", 5),
    "sub": ("-", 5),
    "mul": ("*", 6),
    "div": ("/", 6),
    "floordiv": ("//", 6),
    "mod": ("%", 6),
}
_NOT, _NEG = 3, 7


def expression_text(expr: Expr) -> str:
    """`expr` in Python's notation, with the parentheses its tree needs."""
    return _at_level(expr, 0)


def _at_level(expr: Expr, level: int) -> str:
    """The text of `expr` as an operand of something that binds as tightly as `level`."""
    match expr:
        case Const(value=value):
            return _wrapped(repr(value), _NEG, level) if value < 0 else repr(value)
        case Var(name=name):
            return name
        case Unary(op="not", operand=operand):
            return _wrapped(f"not {_at_level(operand, _NOT)}", _NOT, level)
        case Unary(op="neg", operand=operand):
            return _wrapped(f"-{_at_level(operand, _NEG)}", _NEG, level)
        case Unary(op=op, operand=operand):
            return f"{op}({_at_level(operand, 0)})"
        case Binary(op="min" | "max" as op, left=left, right=right):
            return f"{op}({_at_level(left, 0)}, {_at_level(right, 0)})"
        case Select(condition=condition, then=then, otherwise=otherwise):
            text = f"{_at_level(then, 1)} if {_at_level(condition, 1)} else "
            return _wrapped(text + _at_level(otherwise, 0), 0, level)
        case Load(input=name, indices=indices):
            return f"{name}[{', '.join(_at_level(index, 0) for index in indices)}]"
        case Binary(op=op, left=left, right=right):
            symbol, own = _INFIX[op]
            # Python chains comparisons, so both sides of one are kept apart from others
            first = _at_level(left, own + (op in COMPARISONS))
            return _wrapped(f"{first} {symbol} {_at_level(right, own + 1)}", own, level)
        case _:
            assert_never(expr)


def _wrapped(text: str, own: int, level: int) -> str:
    return f"({text})" if own < level else text


def attention_text(ir: AttentionIR) -> str:
    """What is computed, as definitions in the order in which they are used."""
    first = "kv_len - q_len + i" if ir.alignment == "bottom_right" else "i"
    power = "exp" if ir.base == "e" else "exp2"
    total = "sum(weight)"
    if ir.sink:
        logit = "sink[h]" if ir.base == "e" else "sink[h] * log2(e)"
        total = f"({total} + {power}({logit} - row_max))"
    if ir.off_by_one:
        total = f"({total} + {power}(0 - row_max))"
    weight, share = f"{power}(score - row_max)", f" / {total}"
    if ir.activation is not None:
        weight, share = expression_text(ir.activation), ""
    lines = [
        ("dtype", f"{ir.dtype.name}, sums in {ir.dtype.accumulator}"),
        ("heads", f"{ir.heads} query, {ir.kv_heads} key and value ({ir.group} to 1)"),
        ("head_dim", f"{ir.head_dim}, value_dim {ir.value_dim}"),
        ("q", f"{first} for query i ({ir.alignment}); k = j for key j"),
        ("dot", f"{ir.query_scale!r} * (query · key)"),
        ("score", expression_text(ir.score)),
        ("mask", expression_text(ir.mask)),
        ("weight", f"{weight} where mask, else 0"),
        *_outputs(ir, f"sum(weight * value){share}"),
        ("outputs", ", ".join(ir.outputs)),
    ]
    place = [name for name, _ in lines].index("mask")
    for number, given in enumerate(ir.inputs):
        shape = ", ".join(map(str, given.shape))
        fixed = "" if given.values is None else ", a table of the spec"
        lines.insert(place + number, (given.name, f"({shape}) {given.dtype}{fixed}"))
    if ir.d_model is not None:
        lines.insert(1, ("d_model", f"{ir.d_model}, with projections in and out"))
    return "\n".join([f"attention {ir.name} ({ir.scope})", *_definitions(lines)])


def _outputs(ir: AttentionIR, one: str) -> list[tuple[str, str]]:
    if ir.difference is None:
        return [("out", one)]
    factor = _at_level(ir.difference, _INFIX["mul"][1])
    return [("map", one), ("out", f"map 2h - {factor} * map 2h + 1, of query and key heads")]


def schedule_text(schedule: Schedule) -> str:
    """A table of every decision: name, value, who decided, why."""
    rows = [("decision", "value", "source", "why")]
    rows += [(n, str(d.value), d.source, d.why) for n, d in schedule.decisions()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {source:<{widths[2]}}  {why}".rstrip()
        for name, value, source, why in rows
    )


def kernel_text(program: KernelIR) -> str:
    """The program: the attention it implements, then its kernels."""
    parts = [attention_text(program.attention)]
    parts += [_kernel_text(kernel) for kernel in program.kernels]
    return "\n\n".join(parts)


def _kernel_text(kernel: Kernel) -> str:
    match kernel:
        case FlashForward():
            softmax = kernel.weight is None
            title = f"flash_forward: {'online softmax over ' * softmax}blocks of query rows"
            sizes = [
                ("lanes", f"{kernel.lanes} query rows in a vector"),
                ("tile", f"{kernel.tile_scalars} keys × {kernel.tile_vectors} vectors of rows"),
                ("block_q", f"{kernel.block_q} rows a task, {kernel.panel_rows} a panel"),
                ("block_kv", f"{kernel.block_kv} keys a step"),
                *_scoring(kernel),
            ]
        case GridForward():
            title = "flash_forward: online softmax, a block of threads for a block of query rows"
            tile = f"{kernel.rows} rows × {kernel.keys} keys or {kernel.columns} value columns"
            sizes = [
                ("threads", f"{kernel.threads}, each with {tile}"),
                ("block_q", f"{kernel.block_q} rows × {kernel.value_panel} value columns a block"),
                ("block_kv", f"{kernel.block_kv} keys a step, {kernel.depth} staged at a time"),
                *_scoring(kernel),
            ]
        case SplitKV():
            title = "split_kv: few query rows, split over the keys"
            sizes = [
                ("lanes", f"{kernel.lanes} keys or value columns in a vector"),
                ("rows", f"{kernel.max_rows} of a kv head at most, {kernel.task_rows} of a task"),
                ("tile", f"{kernel.tiles[0].rows} rows × {kernel.key_tile} keys"),
                ("split_kv", f"{kernel.split_kv} keys a split"),
                *_scoring(kernel),
            ]
        case Projection():
            title = "projection: C = A · W + bias, with W packed"
            sizes = [
                ("dtype", kernel.dtype.name),
                ("lanes", f"{kernel.lanes} columns in a vector"),
                ("tile", f"{kernel.tile_rows} rows × {kernel.tile_vectors} vectors of columns"),
                ("block", f"{kernel.block_m} rows × {kernel.block_n} columns"),
                ("depth", f"{kernel.block_k} of the inner dimension"),
            ]
        case _:
            assert_never(kernel)
    lines = list(_definitions(sizes))
    if kernel.buffers:
        shared = isinstance(kernel, GridForward)
        place = "shared memory of a block" if shared else "workspace of a worker"
        lines.append(f"  {place}, in elements:")
        width = max(len(str(b.size)) for b in kernel.buffers)
        named = [(b.name, f"{b.size:>{width}}  {b.holds}") for b in kernel.buffers]
        lines += [f"  {line}" for line in _definitions(named)]
    return "\n".join([title, *lines])


def _scoring(kernel: FlashForward | GridForward | SplitKV) -> list[tuple[str, str]]:
    return [
        ("head_dim", f"{kernel.head_dim}, value_dim {kernel.value_dim}, {kernel.dtype.name}"),
        ("dot", f"{kernel.query_scale!r} * (query · key)"),
        ("score", expression_text(kernel.score)),
        *_mask(kernel.mask),
        *_weighing(kernel),
    ]


def _weighing(kernel: FlashForward | GridForward | SplitKV) -> list[tuple[str, str]]:
    if kernel.weight is not None:
        lines = [("weight", f"{expression_text(kernel.weight)}, without a softmax")]
    else:
        learned = "yes" if kernel.sink else "no"
        lines = [("sink", "one of logit 0" if kernel.off_by_one else learned)]
    if kernel.difference is not None:
        lines.append(("maps", f"2, less {expression_text(kernel.difference)} times the second"))
    return lines


def _mask(plan: MaskPlan | None) -> list[tuple[str, str]]:
    if plan is None:
        return [("mask", "none")]

    def bound(expr: Expr | None) -> str:
        return "open" if expr is None else expression_text(expr)

    return [
        ("mask", expression_text(plan.predicate)),
        ("full tile", expression_text(plan.always)),
        ("not empty", expression_text(plan.possible)),
        ("first key", bound(plan.key_first)),
        ("last key", bound(plan.key_last)),
    ]


def _definitions(lines: Iterable[tuple[str, str]]) -> Iterable[str]:
    pairs = list(lines)
    width = max(len(name) for name, _ in pairs)
    return [f"  {name:<{width}}  {text}" for name, text in pairs]
