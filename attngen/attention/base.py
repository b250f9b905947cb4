"""What cores and layers have in common: attributes, pickling, and the arguments both take.

Input: a :class:`Compiled`. Output: :class:`Attention`. Invariant: nothing changes after
construction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from attngen import call_checks, call_extras
from attngen.backends.numba_cpu import threads
from attngen.call_checks import Array
from attngen.dense_mask import MaskKind
from attngen.errors import CallTypeError
from attngen.ir.attention import AttentionIR
from attngen.ir.schedule import CpuSchedule
from attngen.spec.model import Spec
from attngen.weights import Weights

Result: TypeAlias = Array | tuple[Array, Array]
Recipe: TypeAlias = tuple[Callable[..., "Attention"], tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the driver knows of a compilation.

    Attributes:
        spec: what was asked; `ir`: what it means; `schedule`: how it is computed.
        package: the loaded package; `folder`: where its source is.
        explain: makes the text of ``attention.explain()``.
        recipe: an importable function and picklable arguments that compile this again.
        with_mask: compiles the same for calls that bring a mask array.
    """

    spec: Spec
    ir: AttentionIR
    schedule: CpuSchedule
    package: ModuleType
    folder: Path
    explain: Callable[[], str]
    recipe: Recipe
    with_mask: Callable[[MaskKind], Attention] | None = None


class Attention(ABC):
    """A compiled attention. See :class:`CoreAttention` and :class:`LayerAttention` for calls."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        ir = compiled.ir
        self._package: Any = compiled.package
        self._dtype = ir.dtype.numpy
        self._lse_dtype = np.dtype(ir.dtype.accumulator)
        self._heads = ir.heads
        self._default_lse = "lse" in ir.outputs
        self._inputs = call_extras.input_names(ir)
        self._masked: dict[MaskKind, Attention] = {}

    @property
    def spec(self) -> Spec:
        """What was asked for, checked."""
        return self._compiled.spec

    @property
    def schedule(self) -> CpuSchedule:
        """How it is computed: each decision with its source and reason."""
        return self._compiled.schedule

    @property
    def source_path(self) -> Path:
        """The folder of the generated package."""
        return self._compiled.folder

    @cached_property
    def source(self) -> str:
        """The text of the generated package, each file under its name."""
        parts = [
            f"# {'-' * 8} {path.name} {'-' * (80 - len(path.name))}\n{path.read_text('utf-8')}"
            for path in sorted(self.source_path.glob("*.py"))
        ]
        return "\n".join(parts)

    def explain(self) -> str:
        """Contract, schedule with reasons, FLOP and bytes, as text."""
        return self._compiled.explain()

    @abstractmethod
    def __call__(self, *arrays: Any, **keywords: Any) -> Result:
        """Attend; what the arrays are depends on the scope of the spec."""

    @abstractmethod
    def bind(self, weights: Weights) -> Attention:
        """A callable with `weights` packed once; a core has none and raises CallTypeError."""

    def __repr__(self) -> str:
        ir = self._compiled.ir
        sizes = f"heads={ir.heads}, kv_heads={ir.kv_heads}, head_dim={ir.head_dim}"
        return f"<attngen {ir.scope} {ir.name!r}: {sizes}, {ir.dtype.name}>"

    def __copy__(self) -> Attention:
        return self  # it never changes

    def __deepcopy__(self, memo: dict[int, object]) -> Attention:
        return self

    def __reduce__(self) -> tuple[Callable[..., Attention], tuple[object, ...]]:
        function, arguments = self._compiled.recipe
        return function, arguments

    def _run(self, function: str, *arrays: object, **more: object) -> None:
        """Call a function of the package, on the calling thread where threads cannot run."""
        threads.prepare()
        if threads.must_be_serial():
            more["workers"] = 1
        with threads.guard():
            getattr(self._package, function)(*arrays, **more)

    def _for_mask(self, mask: Array) -> Attention:
        """The callable for calls with such a mask array, compiled when it is first needed."""
        kind = call_extras.mask_kind(mask, self._lse_dtype.name)
        with_mask = self._compiled.with_mask
        if with_mask is None:
            raise CallTypeError("mask: expected none, as this callable was made without a compiler")
        if kind not in self._masked:
            self._masked[kind] = with_mask(kind)
        return self._masked[kind]

    def _known_keywords(self, given: Mapping[str, object], *more: str) -> None:
        """Refuse keywords that are no side input of the spec."""
        if unknown := [name for name in given if name not in self._inputs]:
            known = ("sink", "mask", "lengths", "cu_seqlens", "out", "return_lse", *more)
            known = (*known, *self._inputs)
            call_checks.unknown_keywords(unknown, known)

    def _extras(
        self,
        q_len: int,
        kv_len: int,
        batch: int,
        single: bool,
        lengths: object,
        cu_seqlens: object,
        inputs: Mapping[str, object],
    ) -> dict[str, Any]:
        """The package's keyword arguments for sequences of their own lengths, and side inputs."""
        found: dict[str, Any] = {}
        if lengths is not None and cu_seqlens is not None:
            raise CallTypeError("cu_seqlens: expected none beside 'lengths'; pass one of them")
        if lengths is not None:
            valid = call_extras.check_lengths(lengths, batch, kv_len, batched=not single)
            found["table"] = self._package.sequences.padded(q_len, valid)
        if cu_seqlens is not None:
            ends = call_extras.check_packed(cu_seqlens, q_len, kv_len, batched=not single)
            found["table"] = self._package.sequences.packed(*ends)
            batch = len(ends[0]) - 1
        if self._inputs:
            sizes = call_extras.Sizes(batch, q_len, kv_len)
            found["inputs"] = call_extras.check_inputs(self._compiled.ir, inputs, sizes)
        return found

    def _wants_lse(self, return_lse: object) -> bool:
        if return_lse is None:
            return self._default_lse
        return call_extras.check_return_lse(self._compiled.ir, return_lse)

    def _checked_sink(self, sink: object) -> Array | None:
        return call_extras.check_sink(self._compiled.ir, sink)


def fill_empty(out: Array, lse: Array | None) -> None:
    """No query or no key: rows attend to nothing."""
    out.fill(0)
    if lse is not None:
        lse.fill(-np.inf)
