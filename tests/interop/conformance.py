"""ONNX's own cases for Attention and FlexAttention, as the onnx package makes them.

Each is a model of one node with inputs and outputs; :data:`SKIPPED` lists those that do not run,
each with its reason. Arrays can be laid out anew, and kernels run with a number of workers, or
emulated.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import onnx.backend.test.case.node as onnx_cases
from numba_cpu.emulation import emulate
from onnx.backend.test.case.test_case import TestCase

import attngen
from attngen import attention as callables
from attngen.attention import Attention, CoreAttention
from attngen.cache import Cache
from attngen.driver import Stages, run_stages
from attngen.interop.onnx import from_model
from attngen.spec.model import ScheduleOverride

SMALLEST = {
    "lanes": 4,
    "tile_scalars": 1,
    "tile_vectors": 1,
    "block_q": 4,
    "block_kv": 1,
    "split_kv": 4,
    "short_rows": 1024,
}


def _load() -> dict[str, TestCase]:
    for module in ("attention", "flexattention"):
        importlib.import_module(f"{onnx_cases.__name__}.{module}")
    return {case.name: case for case in onnx_cases._NodeTestCases}


EVERY = _load()
CASES = {name: case for name, case in EVERY.items() if "_expanded" not in name}
EXPANDED = {name: case for name, case in EVERY.items() if name not in CASES}


def operator(case: TestCase) -> str:
    return case.model.graph.node[0].op_type


def dtype(case: TestCase) -> str:
    return case.data_sets[0][0][0].dtype.name


SKIPPED: dict[str, str] = {}
"""Reasons by the names of the cases that do not run: none."""


def tolerance(case: TestCase) -> float:
    """The case's own; but 1e-3 is less than the last bit of a float16."""
    return 2e-3 if dtype(case) == "float16" else case.rtol


def digest(case: TestCase) -> str:
    """Names the kernels that a case needs, so that one process compiles them for all."""
    (node,) = from_model(case.model).values()
    kinds = [a.dtype.kind for a in case.data_sets[0][0][3:4]]
    text = json.dumps([node.spec, kinds], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


Array = np.ndarray[Any, np.dtype[Any]]


def _strided(array: Array) -> Array:
    """Every second element of each axis of an array that holds what nobody may read between."""
    poison = {"f": np.nan, "V": np.nan, "b": True}.get(array.dtype.kind, 1 << 40)
    wide = np.full([2 * size for size in array.shape], poison, array.dtype)
    view = wide[(slice(None, None, 2),) * array.ndim]
    view[...] = array
    return view


def _reversed(array: Array) -> Array:
    turn = (slice(None, None, -1),) * array.ndim
    return np.ascontiguousarray(array[turn])[turn]


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "as it comes": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": _strided,
    "reversed": _reversed,
}


@contextmanager
def running(*, workers: int, kernel: str | None = None) -> Iterator[None]:
    """Calls of compiled cores use this many workers, and this kernel if it can take the arrays."""
    original = CoreAttention._run

    def run(self: CoreAttention, function: str, *arrays: object, **more: object) -> None:
        package = self._package
        can_take = package.split_kv.can_take
        chosen = (lambda *_: False) if kernel == "flash_forward" else can_take
        with (
            mock.patch.object(package.split_kv, "can_take", chosen),
            mock.patch.object(package.entry, "SERIAL_WORK", -1),
        ):
            original(self, function, *arrays, **{**more, "workers": workers})

    with mock.patch.object(CoreAttention, "_run", run):
        yield


def compiler(cache: Path, schedule: Mapping[str, int] | None = None) -> Callable[..., Attention]:
    """``attngen.compile`` with this cache and schedule."""
    return _once(
        f"{cache} {schedule}",
        lambda spec: attngen.compile(spec, schedule=schedule, cache=Cache(cache)),
    )


def emulator(kernel: str) -> Callable[..., Attention]:
    """From a spec to a callable that emulates this kernel if it can take the arrays."""
    overrides = tuple(ScheduleOverride("cpu", n, x) for n, x in SMALLEST.items())

    def attention(stages: Stages) -> Attention:
        ir = stages.simplified
        modules = emulate(stages.package, SMALLEST["lanes"], ir.dtype.accumulator)

        def attend(q, k, v, out, lse, sink, table=None, inputs=None, workers=2):
            if table is None:
                table = modules.sequences.uniform(len(q), q.shape[1], k.shape[1])
            fits = kernel == "split_kv" and modules.split_kv.can_take(k, v, q.shape[1])
            module = modules.split_kv if fits else modules.flash_forward
            more = () if not ir.inputs else (module.arguments_of(inputs or {}),)
            lse = np.empty((0, 0, 0), ir.dtype.accumulator)
            with np.errstate(all="ignore"):
                module.forward(q, k, v, out, lse, sink, table, workers, *more)

        return callables.make(
            callables.Compiled(
                spec=stages.spec,
                ir=ir,
                schedule=stages.schedule,
                package=SimpleNamespace(attend=attend, sequences=modules.sequences),
                folder=Path(),
                explain=str,
                recipe=(str, ()),
                with_mask=lambda kind: attention(replace(stages, mask_array=kind)),
            )
        )

    return _once(kernel, lambda spec: attention(run_stages(spec, overrides=overrides)))


_made: dict[str, Attention] = {}


def _once(what: str, make: Callable[..., Attention]) -> Callable[..., Attention]:
    """`make`, called once for each spec: layouts and cases share what it gave."""

    def remembered(spec: dict[str, Any]) -> Attention:
        key = f"{what} {json.dumps(spec, sort_keys=True)}"
        if key not in _made:
            _made[key] = make(spec)
        return _made[key]

    return remembered
