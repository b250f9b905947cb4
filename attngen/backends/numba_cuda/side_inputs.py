"""How side inputs reach a CUDA kernel: its parameters, and the code that reads them.

An input ``doc`` is a flat array ``doc`` and ``doc_sizes``: the sizes of its axes, then the elements
from one index of an axis to the next. Its minima and maxima over a tile are taken where they are
needed, by the lanes of a warp together.
"""

from __future__ import annotations

from dataclasses import dataclass

from attngen.backends.sections import bounded_inputs
from attngen.ir.attention import AttentionIR, SideInput
from attngen.ir.kernel import MaskPlan

POINTERS = {"float": "SUMS", "int64": "INTEGERS", "bool": "TRUTHS"}


@dataclass(frozen=True, slots=True)
class KernelInput:
    """A side input as the templates print it.

    Attributes:
        name: of the parameter for its address; ``<name>_sizes`` has its sizes and strides.
        pointer: the type of that address.
        rank: its axes; `fields` is twice that.
        element: NumPy's name of what it holds.
        values: of a table of the spec, else None.
        shape: of a table.
        symbols: the sizes of its axes as the spec names them, as Python.
    """

    name: str
    pointer: str
    rank: int
    fields: int
    element: str
    values: tuple[float, ...] | None
    shape: tuple[int, ...]
    symbols: str


def kernel_inputs(ir: AttentionIR) -> tuple[KernelInput, ...]:
    """The side inputs in the order of the kernel's parameters."""
    return tuple(_kernel_input(ir, side) for side in ir.inputs)


def _kernel_input(ir: AttentionIR, side: SideInput) -> KernelInput:
    sizes = {"heads": ir.heads, "kv_heads": ir.kv_heads}
    shape: tuple[int, ...] = ()
    if side.values is not None:
        shape = tuple(s if isinstance(s, int) else sizes[s] for s in side.shape)
    element = {"float": ir.dtype.accumulator, "int64": "int64", "bool": "bool"}[side.dtype]
    rank = len(side.shape)
    return KernelInput(
        name=side.name,
        pointer=POINTERS[side.dtype],
        rank=rank,
        fields=2 * rank,
        element=element,
        values=side.values,
        shape=shape,
        symbols=f"({', '.join(map(_quoted, side.shape))}{',' * (rank == 1)})",
    )


def _quoted(size: str | int) -> str:
    return f'"{size}"' if isinstance(size, str) else str(size)


def definitions(ir: AttentionIR) -> dict[str, str]:
    """Every name that sections may read of side inputs' sizes, and the code that sets it."""
    lines = {}
    for side in ir.inputs:
        rank = len(side.shape)
        for axis in range(rank):
            lines[f"{side.name}_size{axis}"] = f"{side.name}_sizes[{axis}]"
            lines[f"{side.name}_stride{axis}"] = f"{side.name}_sizes[{rank + axis}]"
    return lines


def bound_assignments(ir: AttentionIR, mask: MaskPlan | None, axis: str) -> dict[str, str]:
    """Code for the bounds over a tile's queries (``q``) or keys (``k``)."""
    kinds = {side.name: side.dtype for side in ir.inputs}
    lines = {}
    for bound in mask.data_bounds if mask else ():
        if bound.axis == axis:
            name = bound.input
            row = "b" if bound.batched else "0"
            function = "truth_bounds" if kinds[name] == "bool" else "tile_bounds"
            where = f"{name}, {name}_sizes, {row}, {axis}_first, {axis}_last"
            lines[f"{name}_{axis}_min, {name}_{axis}_max"] = f"{function}({where})"
    return lines


def bound_functions(ir: AttentionIR, mask: MaskPlan | None) -> tuple[str, ...]:
    """The functions that `bound_assignments` calls."""
    bounded = bounded_inputs(mask)
    kinds = {side.dtype for side in ir.inputs if side.name in bounded}
    names = {"truth_bounds" if kind == "bool" else "tile_bounds" for kind in kinds}
    return tuple(sorted(names))
