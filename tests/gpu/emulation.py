"""Generated CUDA packages, called as a user calls them, on the fake driver's emulated GPU."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from unittest import mock

import numpy as np
import numpy.typing as npt
from gpu.fake_driver import FakeDriver, OnDevice

from attngen import loader
from attngen.dense_mask import MaskKind
from attngen.driver import Stages, run_stages
from attngen.ir.attention import AttentionIR
from attngen.ir.bounds import Lengths, shape_of
from attngen.reference import reference_attention
from attngen.spec.model import ScheduleOverride
from attngen.targets import SM_80, CudaTarget

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Emulated:
    """A generated package whose kernel runs in the PTX emulator."""

    stages: Stages
    package: ModuleType

    @property
    def ir(self) -> AttentionIR:
        return self.stages.ir

    def module(self, name: str) -> Any:
        return importlib.import_module(f"{self.package.__name__}.{name}")

    @cached_property
    def ptx(self) -> tuple[str, str]:
        """(PTX, entry) of the kernel."""
        return cast(tuple[str, str], self.module("build").compile_ptx(self.stages.target.isa))

    def attend(self, driver: FakeDriver, *arrays: Any, **more: Any) -> None:
        """The package's `attend`, with the emulator for a GPU; every report is clean."""
        ptx, entry = self.ptx
        launch, build = self.module("launch"), self.module("build")
        code = build.MachineCode("sm_80", entry, ptx.encode(), 0, 0, 0, 0, 0)
        with (
            mock.patch.object(launch, "driver", return_value=driver),
            mock.patch.object(launch, "machine_code", return_value=code),
            mock.patch.object(launch, "_devices", {}),
        ):
            self.package.attend(*arrays, **more)
        assert not driver.contexts, "a context was left current"
        for report in driver.reports:
            report.check()


@dataclass(frozen=True, eq=False)
class Call:
    """The arrays of one call."""

    q: Array
    k: Array
    v: Array
    sink: Array | None = None
    inputs: Mapping[str, Array] = field(default_factory=dict)


def _package(stages: Stages) -> Emulated:
    folder = Path(tempfile.mkdtemp(prefix="attngen-cuda-")) / stages.package.name
    folder.mkdir()
    for file in stages.package.files:
        (folder / file.path).write_text(file.text, encoding="utf-8")
    return Emulated(stages, loader.load(folder))


_kept: dict[str, Emulated] = {}


def emulated(
    spec: Mapping[str, Any] | str,
    target: CudaTarget = SM_80,
    mask_array: MaskKind | None = None,
    **schedule: int,
) -> Emulated:
    """The package of `spec`, compiled once a process."""
    key = repr((spec, target.arch, mask_array, sorted(schedule.items())))
    if key not in _kept:
        source: Any = spec if isinstance(spec, str) else {"name": "emulated", **spec}
        overrides = tuple(
            ScheduleOverride("cuda", name, value, source="call") for name, value in schedule.items()
        )
        stages = run_stages(source, target=target, overrides=overrides)
        if mask_array:
            stages = Stages(stages.spec, target, overrides, mask_array)
        _kept[key] = _package(stages)
    return _kept[key]


def random_call(
    ir: AttentionIR, batch: int, q_len: int, kv_len: int, seed: int = 0, sequences: int = 0
) -> Call:
    """Standard normal arrays; whole numbers are few and ascending, like documents."""
    rng = np.random.default_rng(seed)
    sums = np.dtype(ir.dtype.accumulator)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(ir.dtype.numpy)

    lengths = Lengths(sequences or batch, q_len, kv_len)
    inputs: dict[str, Array] = {}
    for side in ir.inputs:
        shape = shape_of(ir, side, lengths)
        if side.values is not None:
            continue
        if side.dtype == "float":
            inputs[side.name] = rng.standard_normal(shape).astype(sums)
        elif side.dtype == "bool":
            inputs[side.name] = rng.random(shape) < 0.7
        else:
            inputs[side.name] = np.sort(rng.integers(0, 4, shape), axis=-1)
    return Call(
        normal(batch, q_len, ir.heads, ir.head_dim),
        normal(batch, kv_len, ir.kv_heads, ir.head_dim),
        normal(batch, kv_len, ir.kv_heads, ir.value_dim),
        rng.standard_normal(ir.heads).astype(sums) if ir.sink else None,
        inputs,
    )


def run(
    kernel: Emulated, call: Call, driver: FakeDriver | None = None, **more: Any
) -> tuple[Array, Array]:
    """(out, lse) of a call in emulation."""
    driver = driver or FakeDriver()
    ir = kernel.ir
    batch, q_len = call.q.shape[:2]
    out = np.empty((batch, q_len, ir.heads, ir.value_dim), call.q.dtype)
    targets = [driver.empty_like(out)]
    if ir.activation is None:
        targets.append(driver.empty_like(np.empty((batch, ir.heads, q_len), ir.dtype.accumulator)))
    arrays = [driver.put(x) for x in (call.q, call.k, call.v)]
    if call.sink is not None:
        more["sink"] = driver.put(call.sink)
    if call.inputs:
        more["inputs"] = {name: driver.put(x) for name, x in call.inputs.items()}
    kernel.attend(driver, *arrays, *targets, **more)
    result, *lse = (read(driver, target) for target in targets)
    return result, lse[0] if lse else np.zeros((batch, ir.heads, q_len))


def read(driver: FakeDriver, array: OnDevice) -> Array:
    return cast(Array, driver.memory.read(array.region))


def reference(kernel: Emulated, call: Call) -> tuple[Array, Array]:
    """The same in float64 with NumPy."""
    return reference_attention(
        kernel.ir, call.q, call.k, call.v, sink=call.sink, inputs=dict(call.inputs)
    )
