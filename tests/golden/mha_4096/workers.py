"""Start one worker a thread, and hand it arrays.

A kernel is one function, ``worker(arguments, index)``: it takes tasks from a shared counter until
none is left. Its arrays are described by their addresses, shapes and strides in memory, so it is
compiled once for arrays of any layout, and only the loop that starts workers is compiled as
parallel code.
"""

from array import array as packed
from collections import deque
from functools import cache

import numpy as np
from llvmlite import ir
from numba import from_dtype, njit, prange, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from .simd import ELEMENT

MAX_NDIM = 4
FIELDS = 1 + 2 * MAX_NDIM  # of an array's description: address, shape, strides

_I64 = ir.IntType(64)


def aligned_empty(size, dtype):
    """An uninitialised one-dimensional array that begins on a cache line."""
    raw = np.empty(size * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * np.dtype(dtype).itemsize].view(dtype)


class WorkspacePool:
    """Workspaces that calls borrow, so that repeated calls touch no fresh memory."""

    def __init__(self, elements):
        self.elements = elements
        self.free = deque()

    def take(self, workers):
        """An array of at least `workers` rows of `elements`, on a cache line."""
        try:
            block = self.free.pop()
        except IndexError:
            block = None
        if block is None or block.shape[0] < workers:
            block = aligned_empty(workers * self.elements, ELEMENT).reshape(workers, -1)
        return block

    def give(self, block):
        """Return what `take` gave."""
        self.free.append(block)


def describe(*arrays):
    """What `worker(arguments, …)` reads arrays from; it must live as long as the workers run."""
    fields = []
    for array in arrays:
        fields += (array.ctypes.data, *array.shape, *array.strides)
        fields += (0,) * (2 * (MAX_NDIM - array.ndim))
    return packed("q", fields)


def run_workers(worker, arguments, workers):
    """Run worker(arguments, 0 … workers - 1) at the same time; one worker stays on this thread."""
    address = arguments.buffer_info()[0]
    if workers == 1:
        worker(address, 0)
    else:
        start_workers(_machine_code(worker), address, workers)


@cache
def _machine_code(worker):
    """The address of a worker's compiled form with C's calling convention."""
    signature = (types.int64, types.int64)
    worker.compile(signature)
    compiled = worker.overloads[signature]
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)


@njit(parallel=True, cache=True, nogil=True)
def start_workers(worker, arguments, workers):
    """Call the compiled `worker` once in each of `workers` threads."""
    for index in prange(workers):
        _call(worker, arguments, index)


@intrinsic
def _call(typing, worker, arguments, index):
    def code(context, builder, signature, args):
        function_type = ir.FunctionType(ir.VoidType(), [_I64, _I64])
        builder.call(builder.inttoptr(args[0], function_type.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


def _array(context, builder, array_type, arguments, number):
    first = builder.mul(number, _I64(FIELDS))
    base = builder.gep(builder.inttoptr(arguments, _I64.as_pointer()), [first])
    fields = [builder.load(builder.gep(base, [_I64(i)])) for i in range(1 + 2 * array_type.ndim)]
    array = make_array(array_type)(context, builder)
    element = context.get_data_type(array_type.dtype)
    populate_array(
        array,
        data=builder.inttoptr(fields[0], element.as_pointer()),
        shape=fields[1 : 1 + array_type.ndim],
        strides=fields[1 + array_type.ndim :],
        itemsize=context.get_constant(types.intp, context.get_abi_sizeof(element)),
        meminfo=None,
    )
    return array._getvalue()


@intrinsic(prefer_literal=True)
def array_at(typing, arguments, number, ndim):
    """The array with this number among the arguments; of any strides, with `ndim` axes."""
    array_type = types.Array(from_dtype(np.dtype(ELEMENT)), ndim.literal_value, "A")

    def code(context, builder, signature, args):
        return _array(context, builder, array_type, *args[:2])

    return array_type(types.int64, types.int64, ndim), code


@intrinsic
def truths_at(typing, arguments, number):
    """The one-dimensional array of truth values with this number among the arguments."""
    array_type = types.Array(types.boolean, 1, "C")

    def code(context, builder, signature, args):
        return _array(context, builder, array_type, *args)

    return array_type(types.int64, types.int64), code


@intrinsic
def floats_at(typing, arguments, number):
    """The one-dimensional contiguous array of floats with this number among the arguments."""
    array_type = types.Array(from_dtype(np.dtype(ELEMENT)), 1, "C")

    def code(context, builder, signature, args):
        return _array(context, builder, array_type, *args)

    return array_type(types.int64, types.int64), code


@intrinsic
def integers_at(typing, arguments, number):
    """The one-dimensional int64 array with this number among the arguments."""
    array_type = types.Array(types.int64, 1, "C")

    def code(context, builder, signature, args):
        return _array(context, builder, array_type, *args)

    return array_type(types.int64, types.int64), code
