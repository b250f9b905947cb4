"""Real kernels with work for all threads: Python threads, forks, thread counts, other libraries.

Each test is a process of its own, as a threading layer is chosen once a process. The kernels come
from the session's cache.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from compiling import compile_once, run_script

pytestmark = [pytest.mark.numba, pytest.mark.slow]

SPEC = {
    "name": "gqa_causal",
    "heads": 6,
    "kv_heads": 2,
    "head_dim": 24,
    "causal": True,
}

PRELUDE = """
import hashlib, multiprocessing, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numba
import numpy as np
from compiling import Kernels, compile_once

attention = compile_once(Path(os.environ["ATTNGEN_CACHE_DIR"]), eval(sys.argv[1]))
kernels = Kernels(attention)
PREFILL = kernels.arrays(2, 200, 300, 1)[:3]
DECODE = kernels.arrays(3, 2, 2000, 2)[:3]
for q, k, v in (PREFILL, DECODE):  # enough for all threads
    work = q.shape[0] * q.shape[1] * 6 * k.shape[1] * 48
    assert work > attention._package.entry.SERIAL_WORK

def answer(_=None):
    outs = [a for arrays in (PREFILL, DECODE) for a in attention(*arrays, return_lse=True)]
    return hashlib.sha256(b"".join(a.tobytes() for a in outs)).hexdigest()

def in_fork(work, seconds=60):
    child = os.fork()
    if not child:
        import signal
        signal.alarm(seconds)
        os._exit(0 if work() else 1)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child ended with {status}"
"""


@pytest.fixture(scope="module")
def cache(kernel_cache: Path) -> Path:
    """The session's cache, with the kernels compiled and their results known to be right."""
    check = PRELUDE + (
        "for arrays in (PREFILL, DECODE):\n"
        "    kernels.check((*arrays, None), *attention(*arrays, return_lse=True))\n"
    )
    compile_once(kernel_cache, SPEC)
    run_script(check, SPEC, cache=kernel_cache, NUMBA_NUM_THREADS="4")
    return kernel_cache


def run(cache: Path, script: str, **environment: str) -> str:
    return run_script(
        PRELUDE + script, SPEC, cache=cache, **{"NUMBA_NUM_THREADS": "4", **environment}
    )


layers = pytest.mark.parametrize("layer", ["tbb", "omp", "workqueue"])


@layers
def test_threads_forks_and_thread_counts(cache: Path, layer: str) -> None:
    script = """
want = answer()
for n in (1, 2, 3, 4):
    numba.set_num_threads(n)
    assert answer() == want
    assert numba.get_num_threads() == n

def with_its_own_count(n):
    numba.set_num_threads(1 + n % 4)
    return {answer() for _ in range(4)} == {want} and numba.get_num_threads() == 1 + n % 4

with ThreadPoolExecutor(8) as pool:
    assert all(pool.map(with_its_own_count, range(16)))

in_fork(lambda: answer() == want)
in_fork(lambda: (in_fork(lambda: answer() == want), answer() == want)[1])
print(want)
"""
    many = run(cache, script, NUMBA_THREADING_LAYER=layer)
    alone = run(cache, "print(answer())", NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="1")
    assert many.splitlines()[-1] == alone.strip()  # Numba itself has remarks on forks


@layers
def test_children_forked_beside_threads_that_run_kernels(cache: Path, layer: str) -> None:
    """About one child in a hundred hung with tbb, whose locks their parent's threads held."""
    script = """
from attngen.backends.numba_cpu import threads
want = answer()
in_fork(lambda: threads.must_be_serial() == (threads.state().layer == "omp"))
stop = threading.Event()

def work():
    while not stop.is_set():
        answer()

busy = [threading.Thread(target=work, daemon=True) for _ in range(2)]
for thread in busy:
    thread.start()
for _ in range(30):
    in_fork(lambda: threads.must_be_serial() == (layer != "workqueue") and answer() == want, 30)
stop.set()
for thread in busy:
    thread.join()
# nobody but this thread is left
in_fork(lambda: threads.must_be_serial() == (layer == "omp") and answer() == want)
"""
    run(cache, f"layer = {layer!r}\n{script}", NUMBA_THREADING_LAYER=layer)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_worker_processes(cache: Path, method: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        PRELUDE
        + f"""
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    with context.Pool(2) as pool:
        outs = pool.starmap(attention, [PREFILL] * 4)
    assert all(np.array_equal(out, attention(*PREFILL)) for out in outs)
    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert np.array_equal(pool.submit(attention, *DECODE).result(), attention(*DECODE))
"""
    )
    # from a file, as worker processes import the main module
    run_script(
        "import runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], None, '__main__')",
        script,
        SPEC,
        cache=cache,
        NUMBA_NUM_THREADS="4",
    )


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the threads of a process")
@layers
def test_calls_start_no_more_threads(cache: Path, layer: str) -> None:
    script = """
def threads():
    return len(os.listdir("/proc/self/task"))

answer()
with ThreadPoolExecutor(8) as pool:
    list(pool.map(answer, range(8)))
first = threads()
for _ in range(100):
    answer()
assert threads() <= first
for _ in range(10):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(answer, range(16)))
print(threads() - first)
"""
    grown = int(run(cache, script, NUMBA_THREADING_LAYER=layer))
    # GNU OpenMP keeps a team for each thread that calls it until that ends; a Python thread that
    # was joined may still be on its way out
    assert grown <= (3 * 8 if layer == "omp" else 8)


def test_the_workspaces_are_as_many_as_calls_at_once(cache: Path) -> None:
    run(
        cache,
        """
want = answer()
for _ in range(50):
    assert answer() == want
package = attention._package
pools = [package.flash_forward._pool, package.split_kv._pool]
assert [len(pool.free) for pool in pools] == [1, 1]
assert all(block.shape[0] <= 4 for pool in pools for block in pool.free)
with ThreadPoolExecutor(8) as executor:
    list(executor.map(answer, range(64)))
assert all(1 <= len(pool.free) <= 8 for pool in pools)
""",
    )


@layers
def test_other_libraries_keep_their_threads(cache: Path, layer: str) -> None:
    """NumPy's BLAS where it is OpenBLAS, and torch where it is installed."""
    run(
        cache,
        """
import ctypes
libraries = sorted((Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*"))
try:
    import torch
except ImportError:
    torch = None
else:
    torch.set_num_threads(3)

def settings():
    counts = []
    for path in libraries:
        library = ctypes.CDLL(str(path))
        for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads"):
            if hasattr(library, name):
                counts.append(getattr(library, name)())
    return counts, torch and torch.get_num_threads()

def multiply():
    a = np.ones((300, 300), "float32")
    assert np.array_equal(a @ a, np.full_like(a, 300))
    if torch:
        assert (torch.ones(300, 300) @ torch.ones(300, 300) == 300).all()

multiply()
before = settings()
assert not libraries or before[0]
want = answer()
assert settings() == before
multiply()
assert answer() == want
assert settings() == before
assert numba.get_num_threads() == 4
""",
        NUMBA_THREADING_LAYER=layer,
    )
