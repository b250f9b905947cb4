"""``-o DIR`` writes a package that works where attngen is not."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from attngen.driver import compile_spec, run_stages, write_package
from attngen.reference import reference_attention

pytestmark = [pytest.mark.numba, pytest.mark.slow]

# Runs in a process that can import neither attngen nor anything beside it.
CORE = """
    import sys

    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "attngen":
                raise ImportError(f"{name} is not on this machine")

    sys.meta_path.insert(0, Refuse())
    sys.path.insert(0, sys.argv[1])
    import numpy as np
    import standalone

    data = np.load("data.npz")
"""


def run(script: str, packages: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", textwrap.dedent(script), str(packages)],
        cwd=packages,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_a_core(tmp_path: Path) -> None:
    spec = {"name": "standalone", "heads": 4, "kv_heads": 2, "head_dim": 24, "value_dim": 20}
    spec |= {"causal": True, "window": {"left": 9}, "softcap": 5.0}
    write_package(spec, tmp_path)
    rng = np.random.default_rng(1)
    q, k, v = (
        rng.standard_normal((n, h, d), dtype="float32")
        for n, h, d in ((33, 4, 24), (41, 2, 24), (41, 2, 20))
    )
    out, lse = reference_attention(run_stages(spec).ir, q[None], k[None], v[None])
    np.savez(tmp_path / "data.npz", q=q, k=k, v=v, out=out[0], lse=lse[0])
    run(
        CORE
        + """
    q, k, v = data["q"], data["k"], data["v"]
    for rows in (33, 1):
        out, lse = standalone.attention(q[-rows:], k, v, return_lse=True)
        np.testing.assert_allclose(out, data["out"][-rows:], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(lse, data["lse"][:, -rows:], rtol=1e-4, atol=1e-5)
    assert not any(name.partition(".")[0] == "attngen" for name in sys.modules)
    """,
        tmp_path,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(tmp_path: Path, dtype: str) -> None:
    """The package knows bfloat16 by its name alone, so it imports where ml_dtypes is not."""
    spec = {"name": "standalone", "heads": 4, "kv_heads": 2, "head_dim": 20, "causal": True}
    spec |= {"dtype": dtype, "sink": True}
    write_package(spec, tmp_path)
    ir = run_stages(spec).ir
    rng = np.random.default_rng(3)
    q, k, v = (
        rng.standard_normal((n, h, 20)).astype(ir.dtype.numpy)
        for n, h in ((33, 4), (41, 2), (41, 2))
    )
    sink = rng.standard_normal(4, dtype="float32")
    want, lse = reference_attention(ir, q[None], k[None], v[None], sink)
    bits = {name: array.view("uint16") for name, array in {"q": q, "k": k, "v": v}.items()}
    np.savez(tmp_path / "data.npz", sink=sink, want=want[0], lse=lse[0], **bits)
    run(
        CORE
        + f"""
    dtype, unit = "{dtype}", {ir.dtype.rounding[0]}
    """
        + """
    assert "ml_dtypes" not in sys.modules
    q, k, v = data["q"], data["k"], data["v"]
    for wrong in (q, q.astype("float32"), q.astype(">u2")):
        try:
            standalone.attention(wrong, k, v, sink=data["sink"])
        except TypeError as mistake:
            assert f"q must be a NumPy array of {dtype}, not {wrong.dtype}" in str(mistake)
        else:
            raise AssertionError(wrong.dtype)
    if dtype == "bfloat16":
        import ml_dtypes
    q, k, v = (array.view(dtype) for array in (q, k, v))
    want = data["want"]
    for rows in (33, 1):
        out, lse = standalone.attention(q[-rows:], k, v, sink=data["sink"], return_lse=True)
        assert (out.dtype, lse.dtype) == (np.dtype(dtype), np.float32)
        error = np.abs(out.astype("float64") - want[-rows:])
        assert (error <= 1.01 * unit * np.abs(want[-rows:]) + 1e-5).all()
        np.testing.assert_allclose(lse, data["lse"][:, -rows:], rtol=1e-5, atol=1e-5)
        mine = np.empty_like(out)
        assert standalone.attention(q[-rows:], k, v, sink=data["sink"], out=mine) is mine
        assert np.array_equal(mine, out)
    """,
        tmp_path,
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_layer(tmp_path: Path, dtype: str) -> None:
    import attngen
    from attngen.cache import Cache

    spec = {"name": "standalone", "d_model": 48, "heads": 4, "kv_heads": 2, "causal": True}
    spec["dtype"] = dtype
    write_package(spec, tmp_path)
    rng = np.random.default_rng(2)
    attention = compile_spec(spec, cache=Cache(tmp_path / "cache"))
    weights = attngen.Weights.random(attention.spec, rng)
    x = rng.standard_normal((2, 37, 48), dtype="float32").astype(dtype)
    arrays = {name: getattr(weights, name) for name in "qkvo"}
    np.savez(tmp_path / "data.npz", x=x, want=attention.bind(weights)(x), **arrays)
    run(
        CORE
        + """
    from types import SimpleNamespace

    packed = {name: standalone.pack_weight(data[name]) for name in "qkvo"}
    biases = {f"{name}_bias": None for name in "qkvo"}
    x = data["x"]
    out = np.empty_like(x)
    standalone.layer(x, x, SimpleNamespace(**packed, **biases), out)
    assert np.array_equal(out, data["want"])
    """,
        tmp_path,
    )


def test_writing_twice_touches_nothing(tmp_path: Path) -> None:
    home = write_package("gqa", tmp_path)
    other = home / "mine.py"
    other.write_text("x = 1\n")
    (home / "simd.py").write_text("damaged")
    before = {path: path.stat().st_mtime_ns for path in home.iterdir()}
    assert write_package("gqa", tmp_path) == home
    after = {path: path.stat().st_mtime_ns for path in home.iterdir()}
    assert {path.name for path in before if before[path] != after[path]} <= {"simd.py"}
    assert "damaged" not in (home / "simd.py").read_text("utf-8")


def test_mistakes_in_a_call(tmp_path: Path) -> None:
    """What would make kernels read beyond an array, or read it as another dtype, is refused."""
    spec = {"name": "standalone", "heads": 4, "kv_heads": 2, "head_dim": 8, "sink": True}
    write_package(spec, tmp_path)
    np.savez(tmp_path / "data.npz", q=np.ones(1))
    run(
        CORE
        + """
    q, k, v = (np.ones((n, h, 8), "float32") for n, h in ((5, 4), (7, 2), (7, 2)))
    good = {"q": q, "k": k, "v": v, "sink": np.zeros(4, "float32")}
    odd = np.zeros(q.nbytes + 1, np.uint8)[1:].view("float32").reshape(q.shape)
    frozen = np.empty_like(q)
    frozen.flags.writeable = False
    mistakes = [
        (TypeError, "q must be", {"q": q.tolist()}),
        (TypeError, "q must be", {"q": q.astype("float64")}),
        (TypeError, "k must be", {"k": k.astype(">f4")}),
        (TypeError, "v must be", {"v": None}),
        (ValueError, "3 or 4 axes", {"q": q.ravel()}),
        (ValueError, "3 or 4 axes", {"k": k[None], "v": v[None]}),
        (ValueError, "q must have shape", {"q": q[:, :3]}),
        (ValueError, "v must have shape", {"v": v[:3]}),
        (ValueError, "aligned", {"q": odd}),
        (TypeError, "sink must be", {"sink": None}),
        (TypeError, "sink must be", {"sink": np.zeros(4)}),
        (ValueError, "sink must have", {"sink": np.zeros(3, "float32")}),
        (TypeError, "out must be", {"out": [1.0]}),
        (TypeError, "out must be", {"out": np.empty((5, 4, 8))}),
        (ValueError, "out must be", {"out": np.empty((1, 5, 4, 8), "float32")}),
        (ValueError, "out must be", {"out": frozen}),
    ]
    for kind, message, change in mistakes:
        try:
            standalone.attention(**{**good, **change})
        except kind as error:
            assert message in str(error), (change, error)
        else:
            raise AssertionError(change)
    """,
        tmp_path,
    )
