"""Machine code for other processors, side by side in one cache, and the memory a call takes."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest
from compiling import run_script

pytestmark = [pytest.mark.numba, pytest.mark.slow]

SPEC = {
    "name": "machines",
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 20,
    "value_dim": 12,
    "causal": True,
    "softcap": 4.0,
}

SCRIPT = """
import json, os, sys
from pathlib import Path
import numpy as np
from compiling import Kernels, compile_once
from attngen.backends.numba_cpu.probe import probe
from attngen.cache import Cache

cache = Path(os.environ["ATTNGEN_CACHE_DIR"])
attention = compile_once(cache, eval(sys.argv[1]))
kernels = Kernels(attention)
arrays = kernels.arrays(1, 70, 90, 1)
kernels.check(arrays, *attention(*arrays[:3], return_lse=True))
kernel = attention._package.flash_forward.worker
cached = bool(kernel.stats.cache_hits)
(assembly,) = [""] if cached else kernel.inspect_asm().values()
print(json.dumps({
    "isa": probe().isa,
    "lanes": attention.schedule.lanes.value,
    "cached": cached,
    "folder": attention.source_path.name,
    "zmm": "zmm" in assembly,
    "ymm": "ymm" in assembly,
    "fma": "vfmadd" in assembly,
}))
"""

# What LLVM calls an Intel Haswell: AVX2 and FMA, no AVX-512.
HASWELL = (
    "+64bit,+avx,+avx2,+bmi,+bmi2,+cmov,+crc32,+cx16,+cx8,+f16c,+fma,+fsgsbase,+fxsr,+invpcid,"
    "+lzcnt,+mmx,+movbe,+pclmul,+popcnt,+rdrnd,+sahf,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,"
    "+xsave,+xsaveopt"
)


def has_avx2() -> bool:
    try:
        return "avx2" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not has_avx2(), reason="x86-64 with AVX2"
)
def test_machines_that_share_a_cache_never_share_code(tmp_path: Path) -> None:
    def run(**environment: str) -> dict[str, object]:
        answer: dict[str, object] = json.loads(
            run_script(SCRIPT, SPEC, cache=tmp_path, **environment)
        )
        return answer

    generic = run(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    haswell = run(NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES=HASWELL)
    assert (generic["isa"], generic["lanes"]) == ("generic", 1)
    assert [generic[kind] for kind in ("ymm", "zmm", "fma")] == [False] * 3
    assert (haswell["isa"], haswell["lanes"]) == ("avx2", 8)
    assert haswell["fma"]
    assert haswell["ymm"]
    assert not haswell["zmm"]
    assert not haswell["cached"]
    assert generic["folder"] != haswell["folder"]
    # on AVX-512, whose machine code the other may not run, there is an entry of its own
    own = run()
    assert own["folder"] not in (generic["folder"], haswell["folder"])
    again = run(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert again["cached"]
    assert again["folder"] == generic["folder"]


MEMORY = """
import json, os, sys
from pathlib import Path
import numba
import numpy as np
from compiling import compile_once

def status(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10

attention = compile_once(Path(os.environ["ATTNGEN_CACHE_DIR"]), eval(sys.argv[1]))
spec, rng = attention.spec, np.random.default_rng(1)

def arrays(batch, q_len, kv_len):
    shapes = ((q_len, 6, 24), (kv_len, 2, 24), (kv_len, 2, 24))
    return [rng.standard_normal((batch, *s), dtype="float32") for s in shapes]

package = attention._package
results = []
for q_len, kv_len in ((6000, 9000), (2, 400_000)):
    for _ in range(3):  # all code is loaded, all threads have run
        attention(*arrays(1, q_len, 3000))
    q, k, v = arrays(1, q_len, kv_len)
    out = np.zeros_like(q)
    for pool in (package.flash_forward._pool, package.split_kv._pool):
        pool.free.clear()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    attention(q, k, v, out=out)
    used = status("VmHWM") - before
    limit = k.nbytes + v.nbytes + numba.get_num_threads() * (1 << 20)
    assert used <= limit, (used, limit)
    results.append([used, limit])
print(json.dumps(results))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the memory of a process")
def test_memory_beyond_inputs_and_outputs(kernel_cache: Path) -> None:
    spec = {"name": "gqa_causal", "heads": 6, "kv_heads": 2, "head_dim": 24, "causal": True}
    answer = run_script(MEMORY, spec, cache=kernel_cache, NUMBA_NUM_THREADS="2")
    for used, limit in json.loads(answer):
        assert used <= limit
