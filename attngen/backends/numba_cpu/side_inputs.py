"""How side inputs reach the kernels: the names they are passed under and the code that reads them.

An input is one flat contiguous array with its sizes, and where its minima and maxima over a tile
decide a mask, their bounds. Tables of the spec are inputs that the package holds itself. For an
input ``doc`` the kernels know ``doc``, ``doc_size0`` …, ``doc_stride0`` …, and for bounds
``doc_bounds`` and ``doc_granules``.
"""

from __future__ import annotations

from dataclasses import dataclass

from attngen.ir.attention import AttentionIR, SideInput
from attngen.ir.expr import Binary, Const, Expr, Unary, Var
from attngen.ir.kernel import MaskPlan, SourceFile
from attngen.render import render

# What every section may read of the sequence it works on.
SEQUENCE = ("b", "kv_h", "q_len", "kv_len")

_READERS = {"float": "floats_at", "int64": "integers_at", "bool": "truths_at"}
_ELEMENTS = {"float": "ELEMENT", "int64": "np.int64", "bool": "np.bool_"}


@dataclass(frozen=True, slots=True)
class NamedInput:
    """An input as ``inputs.py.jinja`` prints it."""

    name: str
    values: tuple[float, ...] | None
    element: str


@dataclass(frozen=True, slots=True)
class InputsContext:
    """Variables of ``inputs.py.jinja``, which documents them."""

    inputs: tuple[NamedInput, ...]
    has_floats: bool
    bounded: tuple[str, ...]


def inputs_files(ir: AttentionIR, mask: MaskPlan | None) -> tuple[SourceFile, ...]:
    """``inputs.py``, where the spec has side inputs."""
    if not ir.inputs:
        return ()
    named = tuple(NamedInput(i.name, i.values, _ELEMENTS[i.dtype]) for i in ir.inputs)
    has_floats = any(i.values is not None and i.dtype == "float" for i in ir.inputs)
    context = InputsContext(named, has_floats, bounded_inputs(mask))
    return (SourceFile("inputs.py", render("numba_cpu/inputs.py.jinja", context)),)


def bounded_inputs(mask: MaskPlan | None) -> tuple[str, ...]:
    """The inputs of which the mask's interval forms read bounds, each once, in order."""
    return tuple(dict.fromkeys(b.input for b in mask.data_bounds)) if mask else ()


def definitions(ir: AttentionIR, mask: MaskPlan | None, number: int) -> dict[str, str]:
    """Every name that kernels may know, and the code that sets it from a worker's arguments.

    Args:
        ir: its sink comes first, then its inputs, their sizes and their bounds.
        mask: says which inputs have bounds.
        number: of the first of these arguments.
    """
    lines: dict[str, str] = {}
    if ir.sink:
        lines["sink"] = f"array_at(arguments, {number}, 1)"
        number += 1
    sizes, place = number + len(ir.inputs), 0
    lines["sizes"] = f"integers_at(arguments, {sizes})"
    for position, side in enumerate(ir.inputs):
        rank = len(side.shape)
        lines[side.name] = f"{_READERS[side.dtype]}(arguments, {number + position})"
        for axis in range(rank):
            lines[f"{side.name}_size{axis}"] = f"sizes[{place + axis}]"
            lines[f"{side.name}_stride{axis}"] = f"sizes[{place + rank + axis}]"
        lines[f"{side.name}_granules"] = f"sizes[{place + 2 * rank}]"
        place += 2 * rank + 1
    for position, name in enumerate(bounded_inputs(mask)):
        reader = _READERS[_by_name(ir, name).dtype]
        lines[f"{name}_bounds"] = f"{reader}(arguments, {sizes + 1 + position})"
    return lines


def bound_assignments(mask: MaskPlan | None, axis: str) -> dict[str, str]:
    """Code for the bounds over a tile's queries (``q``) or keys (``k``)."""
    lines = {}
    for bound in mask.data_bounds if mask else ():
        if bound.axis == axis:
            name = bound.input
            row = "b" if bound.batched else "0"
            names = f"{name}_{axis}_min, {name}_{axis}_max"
            where = f"{name}_bounds, {name}_granules, {row}, {axis}_first, {axis}_last"
            lines[names] = f"tile_bounds({where})"
    return lines


def _by_name(ir: AttentionIR, name: str) -> SideInput:
    return next(side for side in ir.inputs if side.name == name)


def is_closed(mask: MaskPlan) -> bool:
    """Whether the bounds of the keys say all: no block between them can be empty."""
    return _is_interval(mask.predicate)


def _is_interval(expr: Expr) -> bool:
    match expr:
        case Binary(op="and", left=left, right=right):
            return _is_interval(left) and _is_interval(right)
        case Binary(op="lt" | "le" | "gt" | "ge", left=left, right=right):
            return _is_affine(left) and _is_affine(right)
        case _:
            return False


def _is_affine(expr: Expr) -> bool:
    match expr:
        case Const() | Var():
            return True
        case Unary(op="neg", operand=operand):
            return _is_affine(operand)
        case Binary(op="add" | "sub", left=left, right=right):
            return _is_affine(left) and _is_affine(right)
        case _:
            return False
