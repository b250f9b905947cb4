"""How side inputs reach the kernels: the names they are passed under and the code that reads them.

An input is one flat contiguous array with its sizes, and where its minima and maxima over a tile
decide a mask, their bounds. Tables of the spec are inputs that the package holds itself. For an
input ``doc`` the kernels know ``doc``, ``doc_size0`` …, ``doc_stride0`` …, and for bounds
``doc_bounds`` and ``doc_granules``.
"""

from __future__ import annotations

from dataclasses import dataclass

from attngen.backends.sections import bounded_inputs
from attngen.ir.attention import AttentionIR, SideInput
from attngen.ir.kernel import MaskPlan, SourceFile
from attngen.render import render

GRANULE = 32
"""Positions of a side input that share one minimum and one maximum."""

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
    granule: int
    bounded: tuple[str, ...]


def inputs_files(ir: AttentionIR, mask: MaskPlan | None) -> tuple[SourceFile, ...]:
    """``inputs.py``, where the spec has side inputs."""
    if not ir.inputs:
        return ()
    named = tuple(NamedInput(i.name, i.values, _ELEMENTS[i.dtype]) for i in ir.inputs)
    has_floats = any(i.values is not None and i.dtype == "float" for i in ir.inputs)
    context = InputsContext(named, has_floats, GRANULE, bounded_inputs(mask))
    return (SourceFile("inputs.py", render("numba_cpu/inputs.py.jinja", context)),)


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
