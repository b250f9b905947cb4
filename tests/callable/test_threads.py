"""Parallel kernels under threads and forks, with each of Numba's threading layers.

Each test is a process of its own: a layer is chosen once a process, and what fails here kills it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.numba, pytest.mark.slow]

PRELUDE = """
import multiprocessing, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, sys.argv[1])
import numpy as np
import fake_kernels
from attngen.backends.numba_cpu import threads

attention = fake_kernels.compile_fake(sys.argv[2], {"parallel": True})
rng = np.random.default_rng(3)
q = rng.standard_normal((40, 4, 8), dtype="float32")
k = rng.standard_normal((30, 2, 8), dtype="float32")
v = rng.standard_normal((30, 2, 6), dtype="float32")
want = np.empty((40, 4, 6), "float32")
numpy_kernels = fake_kernels.compile_fake(sys.argv[2] + "/numpy", {})._package
numpy_kernels.attend(q[None], k[None], v[None], want[None])

def is_right(_=None):
    return bool(np.allclose(attention(q, k, v), want, rtol=1e-4, atol=1e-5))

def in_fork(work):
    child = os.fork()
    if not child:
        os._exit(0 if work() else 1)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child ended with {status}"
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all tests keep their kernels, so that one compiles them for all."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "numpy").mkdir()
    return folder


def run(kernels: Path, tmp_path: Path, script: str, **environment: str) -> str:
    program = tmp_path / "program.py"
    program.write_text(f"{PRELUDE}\nif __name__ == '__main__':\n{indented(script)}")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program), str(Path(__file__).parent), str(kernels)],
        env={**os.environ, "NUMBA_NUM_THREADS": "4", **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def indented(script: str) -> str:
    return "".join(f"    {line}\n" for line in script.strip().splitlines())


layers = pytest.mark.parametrize("layer", ["tbb", "omp", "workqueue"])


@layers
def test_many_python_threads_at_once(kernels: Path, tmp_path: Path, layer: str) -> None:
    script = """
with ThreadPoolExecutor(8) as pool:
    assert all(pool.map(is_right, range(200)))
assert threads.state().layer == os.environ["NUMBA_THREADING_LAYER"]
"""
    run(kernels, tmp_path, script, NUMBA_THREADING_LAYER=layer)


@layers
def test_parent_then_forked_child_then_parent(kernels: Path, tmp_path: Path, layer: str) -> None:
    script = """
assert is_right()
for _ in range(2):
    in_fork(lambda: is_right() and is_right())
in_fork(lambda: (in_fork(is_right), True)[1])
in_fork(lambda: threads.must_be_serial() == (threads.state().layer == "omp"))
assert is_right()
assert not threads.must_be_serial()
"""
    run(kernels, tmp_path, script, NUMBA_THREADING_LAYER=layer)


@layers
def test_children_forked_before_the_first_kernel_use_threads(
    kernels: Path, tmp_path: Path, layer: str
) -> None:
    script = """
in_fork(lambda: is_right() and not threads.must_be_serial())
assert is_right()
"""
    run(kernels, tmp_path, script, NUMBA_THREADING_LAYER=layer)


def test_openmp_started_by_others_before_the_fork_counts(kernels: Path, tmp_path: Path) -> None:
    script = """
import numba
numba.get_num_threads()
in_fork(lambda: is_right() and threads.must_be_serial())
"""
    run(kernels, tmp_path, script, NUMBA_THREADING_LAYER="omp")


@layers
def test_a_child_forked_while_a_kernel_runs(kernels: Path, tmp_path: Path, layer: str) -> None:
    script = """
assert is_right()
stop = threading.Event()
def work():
    while not stop.is_set():
        assert is_right()
with ThreadPoolExecutor(2) as pool:
    running = [pool.submit(work) for _ in range(2)]
    for _ in range(5):
        in_fork(is_right)
    stop.set()
    [r.result() for r in running]
"""
    run(kernels, tmp_path, script, NUMBA_THREADING_LAYER=layer)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_worker_processes_get_the_callable_by_pickle(
    kernels: Path, tmp_path: Path, method: str
) -> None:
    script = f"""
os.mkdir("elsewhere")
os.chdir("elsewhere")
assert is_right()
with multiprocessing.get_context("{method}").Pool(2) as pool:
    outs = pool.starmap(attention, [(q, k, v)] * 4)
assert all(np.allclose(out, want, rtol=1e-4, atol=1e-5) for out in outs)
"""
    run(kernels, tmp_path, script)


def test_without_a_choice_of_the_user_tbb_is_found(kernels: Path, tmp_path: Path) -> None:
    environment = {"NUMBA_THREADING_LAYER": "default"}
    script = """
state = threads.state()
print(state)
assert is_right()
assert (state.layer == "tbb") == (state.tbb is not None)
assert state.threads == 4
"""
    run(kernels, tmp_path, script, **environment)


def test_an_impossible_choice_is_an_error_with_advice(kernels: Path, tmp_path: Path) -> None:
    script = """
from attngen.errors import TargetError
for _ in range(2):
    try:
        is_right()
    except TargetError as error:
        assert "unset NUMBA_THREADING_LAYER" in str(error) and "'bogus'" in str(error)
    else:
        raise AssertionError
(problem,) = threads.state().problems
assert "bogus" in problem.fact
"""
    run(kernels, tmp_path, script, NUMBA_THREADING_LAYER="bogus")


@layers
def test_a_changed_thread_count_changes_nothing_else(
    kernels: Path, tmp_path: Path, layer: str
) -> None:
    script = """
import numba
first = attention(q, k, v)
for n in (1, 3, 4):
    numba.set_num_threads(n)
    assert np.array_equal(attention(q, k, v), first)
    assert numba.get_num_threads() == n
"""
    run(kernels, tmp_path, script, NUMBA_THREADING_LAYER=layer)


@layers
def test_openmp_settings_of_the_process_stay(kernels: Path, tmp_path: Path, layer: str) -> None:
    script = """
import ctypes
try:
    openmp = ctypes.CDLL("libgomp.so.1")
except OSError:
    raise SystemExit  # no OpenMP on this machine, so nothing to disturb
openmp.omp_set_num_threads(3)
assert is_right()
assert openmp.omp_get_max_threads() == 3
"""
    run(kernels, tmp_path, script, NUMBA_THREADING_LAYER=layer)


@layers
def test_torch_keeps_its_threads(kernels: Path, tmp_path: Path, layer: str) -> None:
    pytest.importorskip("torch")
    script = """
import torch
torch.set_num_threads(3)
before = (torch.get_num_threads(), torch.get_num_interop_threads())
assert is_right()
a = torch.ones(600, 600)
assert (a @ a)[0, 0] == 600
assert is_right()
assert (torch.get_num_threads(), torch.get_num_interop_threads()) == before
"""
    run(kernels, tmp_path, script, NUMBA_THREADING_LAYER=layer)
