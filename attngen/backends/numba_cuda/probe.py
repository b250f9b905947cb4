"""The GPU of this machine, as a :class:`CudaTarget`: the driver is asked when it is needed."""

from __future__ import annotations

from typing import Any

from attngen.errors import TargetError
from attngen.targets import CUDA_TARGETS, CudaTarget


def probe() -> CudaTarget:
    """The target of the first GPU.

    Raises:
        TargetError: there is none, or kernels are not made for it.
    """
    try:
        from cuda.bindings import driver

        functions: Any = driver
        _checked(functions.cuInit(0))
        device = _checked(functions.cuDeviceGet(0))
        attribute = functions.CUdevice_attribute
        major = _checked(
            functions.cuDeviceGetAttribute(
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device
            )
        )
        minor = _checked(
            functions.cuDeviceGetAttribute(
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device
            )
        )
    except (ImportError, OSError, RuntimeError) as error:
        raise TargetError(f"no GPU is found here ({error}); say which one: {_choice()}") from error
    arch = f"sm_{major}{minor}"
    if arch not in CUDA_TARGETS:
        raise TargetError(f"the GPU here is {arch}, for which no kernels are made; {_choice()}")
    return CUDA_TARGETS[arch]


def _choice() -> str:
    return "--arch " + ", ".join(CUDA_TARGETS)


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status):
        raise RuntimeError(f"the CUDA driver says {getattr(status, 'name', status)}")
    return values[0] if values else None
