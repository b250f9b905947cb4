"""What numba.cuda does not offer: shared memory by address, instructions, reductions by shuffles.

All inline PTX of the package is here. Shared memory is one array of float32 that a launch sizes;
kernels cut it into named parts.
"""

from llvmlite import ir
from numba import cuda, types
from numba.cuda import cgutils
from numba.cuda.extending import intrinsic

ELEMENT = types.float32
ALL_LANES = 0xFFFFFFFF
LARGEST = (1 << 63) - 1


@intrinsic
def shared_memory(typing):
    """The address of the block's shared memory, in elements."""

    def code(context, builder, signature, args):
        kind = ir.ArrayType(ir.FloatType(), 0)
        name = "shared_memory"
        memory = builder.module.globals.get(name)
        if memory is None:
            memory = cgutils.add_global_variable(builder.module, kind, name, addrspace=3)
            memory.align = 16
        start = builder.bitcast(memory, ir.FloatType().as_pointer(3))
        return builder.addrspacecast(start, ir.FloatType().as_pointer())

    return types.CPointer(ELEMENT)(), code


@intrinsic
def fresh(typing, x):
    """`x` itself, an int64, of which the compiler knows nothing.

    What is computed from it inside a loop is not computed before it and kept in registers.
    """

    def code(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        return builder.asm(kind, "mov.b64 $0, $1;", "=l,l", args, side_effect=True)

    return types.int64(types.int64), code


@intrinsic
def exp2(typing, x):
    """2^x, with a relative error of 2^-22; exactly 0 where that is not a normal number."""

    def code(context, builder, signature, args):
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
        return builder.asm(kind, "ex2.approx.ftz.f32 $0, $1;", "=f,f", args, side_effect=False)

    return types.float32(types.float32), code


@cuda.jit(device=True, inline="always")
def group_max(x):
    """The largest of a row group's sixteen values, in all of its threads."""
    x = max(x, cuda.shfl_xor_sync(ALL_LANES, x, 1))
    x = max(x, cuda.shfl_xor_sync(ALL_LANES, x, 2))
    x = max(x, cuda.shfl_xor_sync(ALL_LANES, x, 4))
    return max(x, cuda.shfl_xor_sync(ALL_LANES, x, 8))


@cuda.jit(device=True, inline="always")
def group_sum(x):
    """The sum of a row group's sixteen values, in all of its threads and in the same order."""
    x += cuda.shfl_xor_sync(ALL_LANES, x, 1)
    x += cuda.shfl_xor_sync(ALL_LANES, x, 2)
    x += cuda.shfl_xor_sync(ALL_LANES, x, 4)
    return x + cuda.shfl_xor_sync(ALL_LANES, x, 8)


@cuda.jit(device=True, inline="always")
def tile_bounds(values, sizes, row, first, last):
    """Least and greatest of a row's values at positions first … last, for a whole warp.

    `sizes` are those of the one or two axes, then their strides. Positions outside of a row stand
    for the nearest one in it.
    """
    size = sizes[len(sizes) // 2 - 1]
    start = row * sizes[-2]
    first = max(min(first, size - 1), 0)
    last = min(max(last, 0), size - 1)
    low = LARGEST
    high = -LARGEST
    for position in range(first + cuda.laneid, last + 1, 32):
        value = int(values[start + position])
        low = min(low, value)
        high = max(high, value)
    lane_mask = 16
    while lane_mask:
        low = min(low, cuda.shfl_xor_sync(ALL_LANES, low, lane_mask))
        high = max(high, cuda.shfl_xor_sync(ALL_LANES, high, lane_mask))
        lane_mask //= 2
    return low, high


@cuda.jit(device=True, inline="always")
def truth_bounds(values, sizes, row, first, last):
    """`tile_bounds` of truths."""
    low, high = tile_bounds(values, sizes, row, first, last)
    return low != 0, high != 0
