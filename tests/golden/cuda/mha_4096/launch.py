"""Device arrays and launches through cuda.bindings, the driver's own functions.

A call needs no Numba: a device's machine code is loaded once, and kept while its context lives.
Calls may come from many threads at once.
"""

import ctypes
import functools
import threading
from typing import NamedTuple

from . import flash_forward as kernel
from .build import INSTALL, machine_code


class DeviceArray(NamedTuple):
    """An array on a device: its address, its shape, and its strides in elements."""

    address: int
    shape: tuple
    strides: tuple


# As `__cuda_array_interface__` spells the types that kernels read; bfloat16 as ml-dtypes has it.
TYPES = {
    "bool": "|b1",
    "int32": "<i4",
    "int64": "<i8",
    "float16": "<f2",
    "bfloat16": "<V2",
    "float32": "<f4",
    "float64": "<f8",
}


def device_array(name, value, dtype, shape):
    """`value` as the kernel reads it, if it has `__cuda_array_interface__`, this dtype and shape.

    Raises:
        TypeError, ValueError: naming the argument, what was expected and what came.
    """
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        kind = type(value).__name__
        raise TypeError(f"{name} must be an array on a CUDA device, and a {kind} is not")
    found = interface["typestr"]
    if found != TYPES[dtype]:
        known = {spelled: kind for kind, spelled in TYPES.items()}
        raise TypeError(f"{name} must hold {dtype}, and holds {known.get(found, found)}")
    itemsize = int(found[2:])
    if tuple(interface["shape"]) != shape:
        raise ValueError(f"{name} must have shape {shape}, and has {tuple(interface['shape'])}")
    strides = interface.get("strides")
    if strides is None:
        strides = contiguous_strides(shape, itemsize)
    if any(stride % itemsize for stride in strides):
        raise ValueError(f"{name} must have strides of whole elements, and has {strides}")
    steps = tuple(stride // itemsize for stride in strides)
    return DeviceArray(interface["data"][0], shape, steps)


def contiguous_strides(shape, itemsize):
    """The strides of an array in C order, in bytes."""
    strides = []
    for size in reversed(shape):
        strides.insert(0, itemsize)
        itemsize *= max(size, 1)
    return tuple(strides)


def launch(device, blocks, arguments, stream):
    """Start the kernel on a device's stream.

    Args:
        device: what `device_of` gave.
        blocks: of the grid; nothing happens for 0.
        arguments: parameter -> an address, a number, or a tuple of numbers.
        stream: a handle of the driver, as frameworks give them; 0 is the default stream.
    """
    if not blocks:
        return
    values, types = [], []
    for name in kernel.PARAMETERS:
        value = arguments[name]
        for number in value if isinstance(value, tuple) else (value,):
            values.append(int(number))
            types.append(ctypes.c_int64)
    device.launch(blocks, (tuple(values), tuple(types)), stream)


class Device:
    """A device with the kernel and the spec's tables loaded."""

    def __init__(self, ordinal):
        cuda = driver()
        self.context = checked(cuda.cuDevicePrimaryCtxRetain(ordinal))
        attribute = cuda.CUdevice_attribute
        major, minor = (
            checked(cuda.cuDeviceGetAttribute(part, ordinal))
            for part in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        code = machine_code(f"sm_{major}{minor}")
        self.tables = {}
        checked(cuda.cuCtxPushCurrent(self.context))
        try:
            self.module = checked(cuda.cuModuleLoadData(code.cubin))
            self.function = checked(cuda.cuModuleGetFunction(self.module, code.entry.encode()))
            # More than 48 KiB of shared memory are given to those who ask.
            most = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(cuda.cuFuncSetAttribute(self.function, most, kernel.SHARED_BYTES))
        finally:
            checked(cuda.cuCtxPopCurrent())

    def table(self, name, values):
        """The address of a table of the spec, copied to the device once."""
        with _lock:
            if name not in self.tables:
                cuda = driver()
                checked(cuda.cuCtxPushCurrent(self.context))
                try:
                    address = int(checked(cuda.cuMemAlloc(values.nbytes)))
                    checked(cuda.cuMemcpyHtoD(address, values.ctypes.data, values.nbytes))
                finally:
                    checked(cuda.cuCtxPopCurrent())
                self.tables[name] = address
            return self.tables[name]

    def launch(self, blocks, parameters, stream):
        """Start that many blocks."""
        cuda = driver()
        checked(cuda.cuCtxPushCurrent(self.context))
        try:
            size = (blocks, 1, 1, kernel.THREADS, 1, 1, kernel.SHARED_BYTES)
            checked(cuda.cuLaunchKernel(self.function, *size, stream, parameters, 0))
        finally:
            checked(cuda.cuCtxPopCurrent())


def device_of(array):
    """The device that a DeviceArray with elements lies on."""
    cuda = driver()
    attribute = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    ordinal = int(checked(cuda.cuPointerGetAttribute(attribute, array.address)))
    with _lock:
        if ordinal not in _devices:
            _devices[ordinal] = Device(ordinal)
        return _devices[ordinal]


@functools.cache
def driver():
    """The functions of the CUDA driver.

    Raises:
        ImportError: cuda.bindings is not installed.
    """
    try:
        from cuda.bindings import driver as functions
    except ImportError:
        raise ImportError(f"kernels for CUDA need cuda-bindings: {INSTALL}") from None
    checked(functions.cuInit(0))
    return functions


def checked(result):
    """What a function of the driver gives beside its status.

    Raises:
        RuntimeError: the status is an error.
    """
    status, *values = result
    if int(status):
        raise RuntimeError(f"the CUDA driver says {status.name}")
    return values[0] if values else None


_devices = {}
_lock = threading.RLock()
