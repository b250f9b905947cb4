"""Run generated CPU kernels as plain Python, on vectors that are small NumPy arrays.

Nothing is compiled, so that thousands of schedules and shapes can be tried; and every access is
checked: an index outside its array, or a read of an element that nobody wrote, is an error with the
name of the operation.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from attngen.ir.kernel import SourcePackage


def _njit(**_options: Any) -> Any:
    """``@njit(**options)`` that leaves the function alone."""
    return lambda function: function


class EmulatedSimd:
    """The names of a generated ``simd`` module, on arrays of `lanes` elements."""

    def __init__(self, lanes: int, element: type[np.floating[Any]]) -> None:
        self.LANES = lanes
        self.ELEMENT = element
        pairs: dict[str, Callable[[Any, Any], Any]] = {
            "v_add": np.add,
            "v_sub": np.subtract,
            "v_mul": np.multiply,
            "v_lt": np.less,
            "v_le": np.less_equal,
            "v_gt": np.greater,
            "v_ge": np.greater_equal,
            "v_eq": np.equal,
            "v_ne": np.not_equal,
            "v_floordiv": np.floor_divide,
            "v_mod": np.remainder,
            "v_and": np.logical_and,
            "v_or": np.logical_or,
        }
        for name, function in pairs.items():
            setattr(self, name, self._pair(name, function))
        for name in ("abs", "exp", "exp2", "log", "log2", "sqrt", "floor"):
            setattr(self, f"v_{name}", self._function(getattr(np, name)))
        self.v_div = np.true_divide
        self.v_not = np.logical_not

    @staticmethod
    def _pair(name: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """`function` of two vectors of one kind, as the real operations take them."""

        def operation(a: Any, b: Any) -> Any:
            assert a.dtype == b.dtype, f"{name} of {a.dtype} and {b.dtype}"
            return function(a, b)

        return operation

    def _function(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`function` of a vector of floats, or of integers where it keeps them."""

        def operation(a: Any) -> Any:
            whole = function is np.abs and a.dtype == np.int64
            assert whole or a.dtype == self.ELEMENT, f"{function} of {a.dtype}"
            return function(a)

        return operation

    def _window(self, array: np.ndarray[Any, Any], index: int, what: str) -> slice:
        assert array.ndim == 1, what
        assert array.strides[0] == array.itemsize or array.size <= 1, f"{what} of a strided array"
        end = index + self.LANES
        assert 0 <= index <= end <= array.size, f"{what} of {index}:{end} in {array.size}"
        return slice(index, end)

    def v_load(self, array: Any, index: int) -> Any:
        return array[self._window(array, index, "v_load")].copy()

    def v_store(self, array: Any, index: int, value: Any) -> None:
        assert value.dtype == array.dtype, f"v_store of {value.dtype} to {array.dtype}"
        array[self._window(array, index, "v_store")] = value

    def v_splat_load(self, array: Any, index: int) -> Any:
        assert 0 <= index < array.size, f"v_splat_load of {index} in {array.size}"
        return np.full(self.LANES, array[index])

    def v_splat(self, scalar: Any) -> Any:
        if isinstance(scalar, (bool, np.bool_)):
            return np.full(self.LANES, scalar)
        kind = np.int64 if isinstance(scalar, (int, np.integer)) else self.ELEMENT
        return np.full(self.LANES, scalar, dtype=kind)

    def v_zero(self) -> Any:
        return np.zeros(self.LANES, self.ELEMENT)

    def v_iota(self, start: int) -> Any:
        return np.arange(start, start + self.LANES, dtype=np.int64)

    def v_fma(self, a: Any, b: Any, c: Any) -> Any:
        return (a.astype(np.longdouble) * b + c).astype(self.ELEMENT)

    def v_max(self, a: Any, b: Any) -> Any:
        return np.where(a > b, a, b)

    def v_min(self, a: Any, b: Any) -> Any:
        return np.where(a < b, a, b)

    def v_select(self, condition: Any, a: Any, b: Any) -> Any:
        assert condition.dtype == np.bool_
        assert a.dtype == b.dtype, f"v_select between {a.dtype} and {b.dtype}"
        return np.where(condition, a, b)

    def v_sum(self, a: Any) -> Any:
        return a.sum(dtype=self.ELEMENT)

    def v_weight(self, a: Any) -> Any:
        tiny = a < np.log2(np.finfo(self.ELEMENT).tiny)
        return np.where(tiny, self.ELEMENT(0), np.exp2(a))

    def v_tanh(self, a: Any) -> Any:
        return np.tanh(a)

    def v_gather(self, array: Any, index: Any) -> Any:
        assert array.ndim == 1, "v_gather"
        assert index.dtype == np.int64, f"v_gather at {index.dtype}"
        inside = (index >= 0).all() and (index < array.size).all()
        assert inside, f"v_gather of {index} in {array.size}"
        return array[index]

    def v_to_float(self, a: Any) -> Any:
        assert a.dtype in (np.int64, np.bool_), f"v_to_float of {a.dtype}"
        return a.astype(self.ELEMENT)

    def v_to_int(self, a: Any) -> Any:
        if a.dtype == np.bool_:
            return a.astype(np.int64)
        assert a.dtype == self.ELEMENT, f"v_to_int of {a.dtype}"
        inside = np.clip(a, -(2.0**62), 2.0**62)
        return np.where(np.isnan(a), 0, inside).astype(np.int64)

    def v_sigmoid(self, a: Any) -> Any:
        return 1 / (1 + np.exp(-a))

    def v_transpose(
        self, source: Any, start: int, stride: int, target: Any, to: int, to_stride: int
    ) -> None:
        rows = [self.v_load(source, start + i * stride) for i in range(self.LANES)]
        for i, row in enumerate(np.array(rows).T):
            self.v_store(target, to + i * to_stride, row)

    def prefetch(self, array: Any, index: int) -> None:
        pass

    def fetch_add(self, counters: Any, index: int, amount: int) -> int:
        before = int(counters[index])
        counters[index] += amount
        return before


class EmulatedStorage:
    """The names of a generated ``storage`` module, on arrays of halves themselves."""

    BITS = np.uint16

    def __init__(self, simd: EmulatedSimd) -> None:
        self.simd = simd

    def widen(self, half: Any) -> Any:
        assert half.dtype.itemsize == 2, f"widen of {half.dtype}"
        return np.float32(half)

    def narrow(self, x: Any) -> Any:
        assert x.dtype == np.float32, f"narrow of {x.dtype}"
        return x  # which an array of halves rounds as it is assigned

    def v_read(self, array: Any, index: int) -> Any:
        assert array.itemsize == 2, f"v_read of {array.dtype}"
        return self.simd.v_load(array, index).astype(np.float32)

    def v_write(self, array: Any, index: int, value: Any) -> None:
        assert value.dtype == np.float32, f"v_write of {value.dtype}"
        self.simd.v_store(array, index, value.astype(array.dtype))


class PoisonedPool:
    """Workspaces full of NaN."""

    def __init__(self, elements: int, dtype: Any) -> None:
        self.elements, self.dtype = elements, dtype

    def take(self, workers: int) -> Any:
        return np.full((workers, self.elements), np.nan, self.dtype)

    def give(self, block: Any) -> None:
        pass


def _array_at(arguments: Any, number: int, ndim: int) -> Any:
    assert arguments[number].ndim == ndim
    return arguments[number]


def _run_workers(worker: Callable[..., None], arguments: Any, workers: int) -> None:
    for index in range(workers):
        worker(arguments, index)


def emulate(package: SourcePackage, lanes: int, accumulator: str) -> SimpleNamespace:
    """The kernel modules of `package` by name, running on emulated vectors."""
    simd = EmulatedSimd(lanes, np.dtype(accumulator).type)
    numba = SimpleNamespace(njit=_njit)
    workers = SimpleNamespace(
        WorkspacePool=lambda elements: PoisonedPool(elements, accumulator),
        array_at=_array_at,
        stored_at=_array_at,
        integers_at=lambda arguments, number: arguments[number],
        floats_at=lambda arguments, number: arguments[number],
        truths_at=lambda arguments, number: arguments[number],
        describe=lambda *arrays: arrays,
        run_workers=_run_workers,
    )

    def importer(name: str, *rest: Any) -> Any:
        level = rest[3] if len(rest) > 3 else 0
        if name == "numba":
            return numba
        if level:
            own = {"simd": simd, "storage": EmulatedStorage(simd), "workers": workers}
            return {**own, **modules}[name]
        return builtins.__import__(name, *rest)

    modules: dict[str, ModuleType] = {}
    texts = {file.path: file for file in package.files}
    for path in ("sequences.py", "inputs.py", "flash_forward.py", "split_kv.py"):
        if file := texts.get(path):
            module = ModuleType(path)
            names = {**vars(builtins), "__import__": importer}
            module.__dict__.update({"__builtins__": names, "__package__": "emulated"})
            exec(compile(file.text, path, "exec"), module.__dict__)  # noqa: S102 - ours
            modules[path.removesuffix(".py")] = module
    for module in modules.values():
        module.uniform = modules["sequences"].uniform  # type: ignore[attr-defined]
        if "inputs" in modules:
            module.arguments_of = modules["inputs"].arguments_of  # type: ignore[attr-defined]
    return SimpleNamespace(**modules)


def run(
    module: Any,
    q: Any,
    k: Any,
    v: Any,
    sink: Any = None,
    workers: int = 2,
    table: Any = None,
    inputs: dict[str, Any] | None = None,
) -> tuple[Any, Any]:
    """(out, lse) of a kernel module's `forward`, into poisoned arrays."""
    batch, q_len, heads = q.shape[:3]
    out_heads = heads * v.shape[2] // k.shape[2]
    out = np.full((batch, q_len, out_heads, v.shape[3]), np.nan, q.dtype)
    lse = np.full((batch, heads, q_len), np.nan, module.ELEMENT)
    if batch and q_len:  # what entry.attend sees to
        table = module.uniform(batch, q_len, k.shape[1]) if table is None else table
        more = () if inputs is None else (module.arguments_of(inputs),)
        with np.errstate(all="ignore"):
            module.forward(q, k, v, out, lse, sink, table, workers, *more)
    return out, lse
