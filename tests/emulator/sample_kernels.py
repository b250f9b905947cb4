"""Small numba.cuda kernels, and their PTX without a driver. Imports numba.cuda: import it late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import cuda
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic
from numba.cuda.typing import signature

float32, int32, int64 = types.float32, types.int32, types.int64
LLVM = {"f": ir.FloatType(), "r": ir.IntType(32), "l": ir.IntType(64)}
NUMBA = {"f": float32, "r": int32, "l": int64}


def inline_ptx(name: str, text: str, outputs: str, inputs: str, *, effect: bool = False) -> Any:
    """An intrinsic of `text`: one letter (f32, b32 ``r``, b64 ``l``) for each operand."""
    results = [NUMBA[x] for x in outputs]
    result = (
        types.void
        if not results
        else results[0]
        if len(results) == 1
        else types.UniTuple(results[0], len(results))
    )
    returned = [LLVM[x] for x in outputs]
    llvm: Any = ir.VoidType()
    if returned:
        llvm = returned[0] if len(returned) == 1 else ir.LiteralStructType(returned)
    constraints = [f"={x}" for x in outputs] + list(inputs) + (["~{memory}"] if effect else [])

    def codegen(context: Any, builder: Any, _: Any, args: Any) -> Any:
        function = ir.FunctionType(llvm, [LLVM[x] for x in inputs])
        call = builder.call(
            ir.InlineAsm(function, text, ",".join(constraints), side_effect=True), args
        )
        if not outputs:
            return context.get_dummy_value()
        if len(outputs) == 1:
            return call
        return cgutils.pack_array(
            builder, [builder.extract_value(call, i) for i in range(len(outputs))]
        )

    names = ", ".join(f"x{i}" for i in range(len(inputs)))
    made: dict[str, Any] = {
        "types": signature(result, *(NUMBA[x] for x in inputs)),
        "codegen": codegen,
    }
    exec(f"def {name}(context, {names}):\n    return types, codegen\n", made)  # noqa: S102
    return intrinsic(made[name])


copy = inline_ptx("copy", "cp.async.cg.shared.global [$0], [$1], 16, $2;", "", "rlr", effect=True)
commit = inline_ptx("commit", "cp.async.commit_group;", "", "", effect=True)
wait = inline_ptx("wait", "cp.async.wait_group 0;", "", "", effect=True)
load_matrices = inline_ptx(
    "load_matrices",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];",
    "rrrr",
    "r",
    effect=True,
)
multiply = inline_ptx(
    "multiply",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};",
    "ffff",
    "rrrrrrffff",
)
butterfly = inline_ptx("butterfly", "shfl.sync.bfly.b32 $0, $1, $2, 0x1f, 0xffffffff;", "f", "fr")
store = inline_ptx("store", "st.global.f32 [$0], $1;", "", "lf", effect=True)


@intrinsic  # type: ignore[untyped-decorator]
def shared_address(_: Any, array: Any) -> Any:
    """Where a shared array begins, as the address that ld.shared takes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        pointer = ir.IntType(8).as_pointer
        shared = builder.addrspacecast(builder.bitcast(data, pointer()), pointer(3))
        return builder.ptrtoint(shared, ir.IntType(32))

    return signature(int32, array), codegen


def ptx_of(function: Callable[..., None], *argument_types: Any, threads: int) -> str:
    """PTX for sm_90a; needs no driver."""
    text, _ = cuda.compile(
        function,
        argument_types,
        device=False,
        abi="numba",
        cc=(9, 0, "a"),
        output="ptx",
        launch_bounds=(threads, 1),
    )
    return str(text)


def add(x: Any, y: Any, out: Any) -> None:
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


def blocked_product(x: Any, y: Any, out: Any) -> None:
    """16 × 16 tiles of float32 in shared memory, any shape."""
    left = cuda.shared.array((16, 16), float32)
    right = cuda.shared.array((16, 16), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * 16 + ty, cuda.blockIdx.x * 16 + tx
    total = float32(0.0)
    for start in range(0, x.shape[1], 16):
        inside = row < x.shape[0] and start + tx < x.shape[1]
        left[ty, tx] = x[row, start + tx] if inside else float32(0.0)
        inside = start + ty < y.shape[0] and column < y.shape[1]
        right[ty, tx] = y[start + ty, column] if inside else float32(0.0)
        cuda.syncthreads()
        for k in range(16):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


def row_sums(x: Any, out: Any) -> None:
    """A warp for each row; the last exchange leaves the sum in every lane."""
    row, lane = cuda.blockIdx.x * 4 + cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
    total = float32(0.0)
    if row < x.shape[0]:
        for i in range(lane, x.shape[1], 32):
            total += x[row, i]
    for by in (16, 8, 4, 2, 1):
        total += butterfly(total, by)
    if lane == 0 and row < x.shape[0]:
        out[row] = total


def largest(x: Any, count: Any, out: Any) -> None:
    """Blocks leave their maximum; the last to be counted takes the maximum of those."""
    parts = cuda.shared.array(4, float32)
    last = cuda.shared.array(1, int32)
    i = cuda.grid(1)
    best = x[i] if i < x.size else float32(-3.0e38)
    for by in (16, 8, 4, 2, 1):
        best = max(best, butterfly(best, by))
    if cuda.threadIdx.x % 32 == 0:
        parts[cuda.threadIdx.x // 32] = best
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        for warp in range(4):
            best = max(best, parts[warp])
        out[1 + cuda.blockIdx.x] = best
        cuda.threadfence()
        last[0] = cuda.atomic.add(count, 0, 1)
        cuda.threadfence()
    cuda.syncthreads()
    if last[0] == cuda.gridDim.x - 1 and cuda.threadIdx.x == 0:
        for block in range(cuda.gridDim.x):
            best = max(best, out[1 + block])
        out[0] = best


ROWS, COLUMNS, STEP = 64, 32, 32  # of a block's tile; its 4 warps take 16 rows each
ROW_BYTES = 2 * STEP
A_BYTES, B_BYTES = ROWS * ROW_BYTES, COLUMNS * ROW_BYTES
STAGE = A_BYTES + B_BYTES
TILE_SHARED = 2 * STAGE


def tile_product(a: Any, b: Any, c: Any, m: Any, n: Any, k: Any, stride: Any) -> None:
    """C = A Bᵀ of float16 rows at `a` and `b`, `stride` bytes apart; float32 at `c`, n to a row.

    Tiles come by cp.async into two stages, 16 bytes at place ``chunk ^ (row >> 1 & 3)``, so that
    the rows of an ldmatrix lie in different banks; what lies outside is filled with zeros.
    """
    shared = cuda.shared.array(0, types.uint16, alignment=1024)
    base = shared_address(shared)
    thread = int32(cuda.threadIdx.x)
    lane, warp = int32(thread & 31), int32(thread >> 5)
    top, first = int32(cuda.blockIdx.x * ROWS), int32(cuda.blockIdx.y * COLUMNS)
    row, chunk = int32(thread >> 2), int32(thread & 3)
    place = int32(row * ROW_BYTES + ((chunk ^ ((row >> 1) & 3)) << 4))
    steps = int32((k + STEP - 1) // STEP)
    total = cuda.local.array(16, float32)
    for i in range(16):
        total[i] = float32(0.0)
    half = int32(lane >> 4)
    from_a = int32((warp * 16 + (lane & 15)) * ROW_BYTES)
    twist_a = int32((lane >> 1) & 3)
    from_b = int32(((lane & 7) + (half << 3)) * ROW_BYTES)
    for step in range(steps + 1):
        wait()
        cuda.syncthreads()
        if step < steps:
            to = int32(base + (step & 1) * STAGE + place)
            at = int64(step * ROW_BYTES + chunk * 16)
            left = int32(min(max(2 * k - int32(at), 0), 16))
            for part in range(2):
                r = int32(row + 32 * part)
                some = left if top + r < m else int32(0)
                source = a + int64(top + r) * stride + at if some > 0 else a
                copy(int32(to + 32 * part * ROW_BYTES), source, some)
            some = left if first + row < n else int32(0)
            source = b + int64(first + row) * stride + at if some > 0 else b
            copy(int32(to + A_BYTES), source, some)
            commit()
        if step > 0:
            stage = int32(base + ((step - 1) & 1) * STAGE)
            for inner in range(2):
                mine = int32((2 * inner + half) ^ twist_a)
                a0, a1, a2, a3 = load_matrices(int32(stage + from_a + (mine << 4)))
                for pair in range(2):
                    other = int32((2 * inner + ((lane >> 3) & 1)) ^ twist_a)
                    where = int32(stage + A_BYTES + from_b + pair * 16 * ROW_BYTES + (other << 4))
                    b0, b1, b2, b3 = load_matrices(where)
                    t = 8 * pair
                    total[t], total[t + 1], total[t + 2], total[t + 3] = multiply(
                        a0, a1, a2, a3, b0, b1, total[t], total[t + 1], total[t + 2], total[t + 3]
                    )
                    t = 8 * pair + 4
                    total[t], total[t + 1], total[t + 2], total[t + 3] = multiply(
                        a0, a1, a2, a3, b2, b3, total[t], total[t + 1], total[t + 2], total[t + 3]
                    )
    for i in range(16):
        r = int32(top + warp * 16 + (lane >> 2) + 8 * ((i >> 1) & 1))
        column = int32(first + 8 * (i >> 2) + 2 * (lane & 3) + (i & 1))
        if r < m and column < n:
            store(c + (int64(r) * n + column) * 4, total[i])


TILE_TYPES = (int64, int64, int64, int32, int32, int32, int64)
