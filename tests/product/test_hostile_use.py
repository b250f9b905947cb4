"""What an expert with no patience tries: settings, streams and arrays that few people meet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compiling import ROOT, Kernels, compile_once, kernels_once, run_script, start_script

import attngen
from attngen.call_checks import check_out
from attngen.driver import run_stages

pytestmark = [pytest.mark.numba, pytest.mark.slow]

SPEC = {"name": "gqa_causal", "heads": 6, "kv_heads": 2, "head_dim": 24, "causal": True}


@pytest.fixture(scope="module")
def kernels(kernel_cache: Path) -> Kernels:
    return kernels_once(kernel_cache, SPEC)


def test_without_numbas_compiler_there_is_advice(kernel_cache: Path) -> None:
    compile_once(kernel_cache, SPEC)
    script = """
    import os, sys
    from pathlib import Path
    import attngen
    from compiling import Kernels, compile_once
    kernels = Kernels(compile_once(Path(os.environ["ATTNGEN_CACHE_DIR"]), eval(sys.argv[1])))
    try:
        kernels.attention(*kernels.arrays(1, 3, 4)[:3])
    except attngen.TargetError as error:
        print(error)
    """
    answer = run_script(script, SPEC, cache=kernel_cache, NUMBA_DISABLE_JIT="1")
    assert "unset NUMBA_DISABLE_JIT" in answer


def test_a_closed_standard_output(kernel_cache: Path) -> None:
    command = f"{sys.executable} -c 'from attngen.cli import main; main()' specs >&-"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "ATTNGEN_CACHE_DIR": str(kernel_cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("tile", "hint"),
    [
        ({"tile_scalars": 500, "tile_vectors": 3}, "tile_scalars: 9 with tile_vectors: 3"),
        ({"tile_scalars": 500, "tile_vectors": 300}, "tile_vectors: 15 with tile_scalars: 1"),
    ],
)
def test_the_hint_for_a_register_tile_is_a_legal_one(tile, hint: str) -> None:
    from attngen.targets import AVX512

    with pytest.raises(attngen.SpecError, match=hint):
        _ = run_stages({**SPEC, "schedule": {"cpu": tile}}, target=AVX512).schedule


def overlapping(shape: tuple[int, ...], strides: tuple[int, ...]):
    buffer = np.zeros(1000, "float32")
    return np.lib.stride_tricks.as_strided(buffer[400:], shape, [4 * s for s in strides])


@pytest.mark.parametrize(
    ("shape", "strides", "meets"),
    [
        ((5, 4, 8), (1, 4, 1), True),
        ((5, 4, 8), (0, 8, 1), True),
        ((2, 2, 8), (8, 8, 1), True),
        ((2, 2, 2), (6, -6, 1), True),
        ((2, 2, 1), (3, 2, 9), False),  # 0, 2, 3 and 5: they interleave and never meet
        ((3, 2, 1), (2, 3, 1), False),
        ((4, 2, 1), (2, 6, 1), True),
        ((1, 4, 8), (0, 8, 1), False),
        ((5, 4, 8), (-32, -8, -1), False),
        ((5, 4, 8), (1, 5, 20), False),
    ],
)
def test_out_whose_elements_share_their_place(shape, strides, meets: bool) -> None:
    out = overlapping(shape, strides)
    if meets:
        with pytest.raises(attngen.AttngenError, match="share their place"):
            check_out(out, "float32", shape, {})
    else:
        assert np.shares_memory(check_out(out, "float32", shape, {}), out)


def test_interrupts_leave_the_callable_usable(kernel_cache: Path) -> None:
    kernels_once(kernel_cache, SPEC)
    script = """
    import os, signal, sys, threading
    from pathlib import Path
    import numpy as np
    from compiling import Kernels, compile_once
    kernels = Kernels(compile_once(Path(os.environ["ATTNGEN_CACHE_DIR"]), eval(sys.argv[1])))
    arrays = kernels.arrays(1, 1500, 1500, 1)[:3]
    want = kernels.attention(*arrays)
    for i in range(4):
        stop = threading.Timer(0.003 + 0.005 * i, os.kill, (os.getpid(), signal.SIGINT))
        try:
            stop.start()
            while True:
                kernels.attention(*arrays)
        except KeyboardInterrupt:
            assert np.array_equal(kernels.attention(*arrays), want)
    """
    run_script(script, SPEC, cache=kernel_cache)


class Hostile(np.ndarray):
    """A subclass whose every own operation is wrong."""

    def __getitem__(self, index):
        raise RuntimeError("kernels read memory, not this")

    @property
    def shape(self):
        return (1, 2)

    __array_priority__ = 1e9


def test_subclasses_are_the_memory_they_hold(kernels: Kernels) -> None:
    arrays = kernels.arrays(1, 20, 30, 3)
    hostile = [a.view(Hostile) for a in arrays[:3]]
    out = kernels.attention(*hostile)
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, kernels.attention(*arrays[:3]))


def test_a_batch_of_very_many(kernels: Kernels) -> None:
    q, k, v, _ = kernels.arrays(1, 1, 3, 3)
    many = [np.broadcast_to(a, (70_000, *a.shape[1:])) for a in (q, k, v)]
    out = kernels.attention(*many)
    np.testing.assert_array_equal(out, np.broadcast_to(kernels.attention(q, k, v), out.shape))
    nothing = [np.broadcast_to(a[:, :0], (10**9, 0, *a.shape[2:])) for a in (q, k, v)]
    assert kernels.attention(*nothing).shape == (10**9, 0, 6, 24)


def test_the_users_own_parallel_code_goes_first(kernel_cache: Path) -> None:
    kernels_once(kernel_cache, SPEC)
    script = """
    import os, sys
    from pathlib import Path
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def theirs(x):
        for i in numba.prange(x.size):
            x[i] += 1

    x = np.zeros(1000)
    theirs(x)
    numba.set_num_threads(1)
    from compiling import Kernels, compile_once
    kernels = Kernels(compile_once(Path(os.environ["ATTNGEN_CACHE_DIR"]), eval(sys.argv[1])))
    for threads in (1, 2):
        numba.set_num_threads(threads)
        arrays = kernels.arrays(1, 300, 300, 1)
        kernels.check(arrays, *kernels.attention(*arrays[:3], return_lse=True))
        theirs(x)
    assert (x == 3).all() and numba.get_num_threads() == 2
    """
    for layer in ("default", "workqueue"):
        done = start_script(
            script, SPEC, cache=kernel_cache, NUMBA_NUM_THREADS="2", NUMBA_THREADING_LAYER=layer
        )
        assert done.returncode == 0, done.stderr
