"""A CUDA driver without a GPU: it checks how it is called, and runs launches in the PTX emulator.

It stands in for ``cuda.bindings.driver``. What is loaded as machine code is PTX text.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from ptx.launch import launch
from ptx.memory import GlobalMemory, Region
from ptx.report import Report


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1


OK = Status.CUDA_SUCCESS
SHARED_BY_DEFAULT = 48 << 10


@dataclass(eq=False)
class OnDevice:
    """An array in the fake device's memory, as frameworks describe theirs."""

    region: Region
    strides: tuple[int, ...] | None
    typestr: str

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.region.shape,
            "strides": self.strides,
            "typestr": self.typestr,
            "data": (self.region.address, False),
            "version": 3,
        }


@dataclass(eq=False)
class FakeDriver:
    """The functions of the driver that ``launch.py`` calls, each giving (status, value)."""

    capability: tuple[int, int] = (8, 0)
    memory: GlobalMemory = field(default_factory=GlobalMemory)
    outputs: list[Region] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    contexts: list[object] = field(default_factory=list)
    shared_limit: int = SHARED_BY_DEFAULT
    fail: str = ""

    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=0,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=1,
    )
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9)

    def put(self, array: npt.ArrayLike) -> OnDevice:
        """Copy an array with its strides to the device."""
        values = np.asarray(array)
        region = self.memory.place(values)
        return OnDevice(region, values.strides, values.dtype.str)

    def empty_like(self, array: npt.NDArray[Any]) -> OnDevice:
        """Memory for a result with the strides of `array`, of which all must be written."""
        region = self.memory.reserve_like(array)
        self.outputs.append(region)
        return OnDevice(region, array.strides, array.dtype.str)

    def cuInit(self, flags: int) -> tuple[Status]:  # noqa: N802 - the driver's names
        assert flags == 0
        return (OK,)

    def cuDevicePrimaryCtxRetain(self, ordinal: int) -> tuple[Status, str]:  # noqa: N802
        return OK, f"context of device {ordinal}"

    def cuDeviceGetAttribute(self, attribute: int, ordinal: int) -> tuple[Status, int]:  # noqa: N802
        assert ordinal == 0
        return OK, self.capability[attribute]

    def cuCtxPushCurrent(self, context: object) -> tuple[Status]:  # noqa: N802
        self.contexts.append(context)
        return (OK,)

    def cuCtxPopCurrent(self) -> tuple[Status, object]:  # noqa: N802
        return OK, self.contexts.pop()

    def cuModuleLoadData(self, image: bytes) -> tuple[Status, str]:  # noqa: N802
        assert self.contexts
        return OK, image.decode()

    def cuModuleGetFunction(self, module: str, name: bytes) -> tuple[Status, str]:  # noqa: N802
        assert f".entry {name.decode()}(" in module
        return OK, module

    def cuFuncSetAttribute(self, function: str, attribute: int, value: int) -> tuple[Status]:  # noqa: N802
        assert attribute == 8
        assert function
        self.shared_limit = value
        return (OK,)

    def cuMemAlloc(self, size: int) -> tuple[Status, int]:  # noqa: N802
        assert self.contexts
        return OK, self.memory.place(np.zeros(size, np.uint8), writable=True).address

    def cuMemcpyHtoD(self, target: int, source: int, size: int) -> tuple[Status]:  # noqa: N802
        from ptx.memory import BASE

        data = np.frombuffer(ctypes.string_at(source, size), np.uint8)
        self.memory.data[target - BASE : target - BASE + size] = data
        return (OK,)

    def cuPointerGetAttribute(self, attribute: int, address: int) -> tuple[Status, int]:  # noqa: N802
        assert attribute == 9
        assert address
        return OK, 0

    def cuLaunchKernel(  # noqa: N802
        self,
        function: str,
        *sizes: Any,
    ) -> tuple[Status]:
        *grid_and_block, shared, stream, parameters, extra = sizes
        assert len(grid_and_block) == 6
        assert self.contexts
        assert extra == 0
        assert stream == 0 or isinstance(stream, int)
        assert shared <= self.shared_limit, "shared memory above 48 KiB is not enabled"
        if self.fail:
            return (Status.CUDA_ERROR_INVALID_VALUE,)
        self.reports.append(
            launch(
                function,
                self.memory,
                grid=grid_and_block[:3],
                block=grid_and_block[3:],
                arguments=_arguments(*parameters),
                outputs=self.outputs,
                dynamic_shared=shared,
            )
        )
        return (OK,)


def _arguments(values: Sequence[int], types: Sequence[type]) -> list[int]:
    assert len(values) == len(types)
    assert set(types) == {ctypes.c_int64}
    return list(values)
