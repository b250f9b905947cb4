"""What a call tells the driver, and what it refuses: a dry run against the fake driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu.emulation import Emulated, emulated, random_call
from gpu.fake_driver import FakeDriver, OnDevice

SPEC: dict[str, Any] = {"heads": 4, "kv_heads": 2, "head_dim": 8, "sink": True}
SIDE: dict[str, Any] = {
    "heads": 4,
    "head_dim": 8,
    "bias": "alibi",
    "score": "score + slope[h]",
    "inputs": {"slope": {"shape": ["heads"]}},
}


class Recorder(FakeDriver):
    """Keeps what a launch is given instead of running it."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[tuple[tuple[Any, ...], tuple[int, ...]]] = []

    def cuLaunchKernel(self, _: str, *sizes: Any) -> Any:  # type: ignore[override]  # noqa: N802
        self.launches.append((sizes[:8], sizes[8][0]))
        return (FakeDriver.cuInit(self, 0)[0],)


def arrays(kernel: Emulated, driver: FakeDriver, batch: int, q_len: int, kv_len: int) -> Any:
    call = random_call(kernel.ir, batch, q_len, kv_len)
    out = np.empty((batch, q_len, kernel.ir.heads, kernel.ir.value_dim), "float32")
    placed = {name: driver.put(getattr(call, name)) for name in "qkv"}
    return placed | {"out": driver.empty_like(out), "sink": driver.put(np.zeros(4, "float32"))}


def named(kernel: Emulated, values: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The flat values of a launch by the kernel's parameters."""
    found: dict[str, tuple[int, ...]] = {}
    for name, kind in kernel.module("flash_forward").PARAMETERS.items():
        count = getattr(kind, "count", 1)
        found[name], values = values[:count], values[count:]
    assert not values
    return found


def test_the_kernel_takes_its_parameters_in_the_order_of_the_table() -> None:
    kernel = emulated(SPEC)
    module = kernel.module("flash_forward")
    code = module.forward.__code__
    assert code.co_varnames[: code.co_argcount] == tuple(module.PARAMETERS)


def test_a_launch() -> None:
    kernel, driver = emulated(SPEC), Recorder()
    given = arrays(kernel, driver, 2, 100, 50)
    kernel.attend(driver, **given, stream=7)
    ((sizes, values),) = driver.launches
    flash = kernel.module("flash_forward")
    row_blocks = -(-100 * 2 // flash.BLOCK_Q)
    assert sizes[:3] == (2 * 2 * row_blocks, 1, 1)
    assert sizes[3:6] == (flash.THREADS, 1, 1)
    assert sizes[6:] == (flash.SHARED_BYTES, 7)
    found = named(kernel, values)
    for name in ("q", "k", "v", "out", "sink"):
        assert found[name] == (given[name].region.address,)
    assert found["q_strides"] == (100 * 32, 32, 8, 1)
    assert found["k_strides"] == (50 * 16, 16, 8, 1)
    assert found["lse"] == (0,)
    rest = {name: found[name] for name in ("q_len", "kv_len", "row_blocks", "has_lse", "layout")}
    assert rest == {
        "q_len": (100,),
        "kv_len": (50,),
        "row_blocks": (row_blocks,),
        "has_lse": (0,),
        "layout": (flash.UNIFORM,),
    }


def test_shared_memory_above_48_kib_is_enabled() -> None:
    kernel, driver = emulated({"heads": 1, "head_dim": 256}, block_kv=256), Recorder()
    given = arrays(kernel, driver, 1, 4, 4)
    del given["sink"]
    kernel.attend(driver, **given)
    assert driver.shared_limit == kernel.module("flash_forward").SHARED_BYTES > 48 << 10


def test_tables_are_copied_to_the_device_once() -> None:
    kernel, driver = emulated(SIDE), Recorder()
    given = arrays(kernel, driver, 1, 4, 4)
    del given["sink"]
    slope = driver.put(np.ones(4, "float32"))
    kernel.attend(driver, **given, inputs={"slope": slope})
    found = named(kernel, driver.launches[0][1])
    assert found["slope_sizes"] == (4, 1)
    assert found["alibi_slopes_sizes"] == (4, 1)
    from ptx.memory import BASE

    at = found["alibi_slopes"][0] - BASE
    table = driver.memory.data[at : at + 16].view(np.float32)
    assert table.tolist() == [0.25, 0.0625, 0.015625, 0.00390625]


@pytest.mark.parametrize(("batch", "q_len"), [(0, 3), (2, 0)])
def test_nothing_is_launched_for_nothing(batch: int, q_len: int) -> None:
    kernel, driver = emulated(SPEC), Recorder()
    kernel.attend(driver, **arrays(kernel, driver, batch, q_len, 5))
    assert not driver.launches


MISTAKES: list[tuple[type[Exception], str, Any]] = [
    (TypeError, "q must be an array on a CUDA device, and a ndarray is not", {"q": "host"}),
    (TypeError, "sink must be an array on a CUDA device", {"sink": None}),
    (TypeError, "k must hold float32, and holds float64", {"k": ((2, 9, 2, 8), "float64")}),
    (ValueError, r"k must have shape \(2, 9, 2, 8\)", {"k": ((2, 9, 4, 8), "float32")}),
    (ValueError, r"q must have 4 axes", {"q": ((5, 4, 8), "float32")}),
    (ValueError, r"out must have shape", {"out": ((2, 5, 4, 9), "float32")}),
    (ValueError, r"lse must have shape \(2, 4, 5\)", {"lse": ((2, 5, 4), "float32")}),
    (TypeError, "lengths must hold int32", {"lengths": ((2,), "int64")}),
    (ValueError, "cu_seqlens describes a batch of one", {"cu_seqlens": "pair"}),
]


@pytest.mark.parametrize(("kind", "message", "change"), MISTAKES)
def test_a_mistake_names_the_argument(
    kind: type[Exception], message: str, change: dict[str, Any]
) -> None:
    kernel, driver = emulated(SPEC), Recorder()
    given = arrays(kernel, driver, 2, 5, 9)
    for name, what in change.items():
        match what:
            case "host":
                given[name] = np.zeros((2, 5, 4, 8), "float32")
            case "pair":
                given[name] = (driver.put(np.zeros(2, np.int32)),) * 2
            case (shape, dtype):
                given[name] = driver.put(np.zeros(shape, dtype))
            case _:
                given[name] = what
    with pytest.raises(kind, match=message):
        kernel.attend(driver, **given)
    assert not driver.launches


def test_strides_of_parts_of_elements_are_refused() -> None:
    kernel, driver = emulated(SPEC), Recorder()
    given = arrays(kernel, driver, 1, 2, 3)
    q: OnDevice = given["q"]
    q.strides = (65, 32, 8, 4)
    with pytest.raises(ValueError, match="strides of whole elements"):
        kernel.attend(driver, **given)


def test_an_error_of_the_driver_is_told() -> None:
    kernel, driver = emulated(SPEC), FakeDriver(fail="cuLaunchKernel")
    with pytest.raises(RuntimeError, match="the CUDA driver says CUDA_ERROR_INVALID_VALUE"):
        kernel.attend(driver, **arrays(kernel, driver, 1, 2, 3))
    assert not driver.contexts
