"""The backend under ONNX's own runner, models of several nodes, and what it refuses."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.runner as onnx_runner
import onnx.reference
import pytest
from filelock import FileLock
from interop.conformance import CASES, EVERY, EXPANDED, SKIPPED, compiler, digest, tolerance
from onnx import TensorProto, helper
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from attngen.errors import CallTypeError, CallValueError
from attngen.interop.onnx import AttngenBackend, backend

RUN = sorted(CASES.keys() - SKIPPED)
FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


@pytest.fixture(scope="module")
def runner_tests() -> type[unittest.TestCase]:
    """ONNX's runner over its cases of the two operators; making all others takes long."""
    with pytest.MonkeyPatch.context() as patch:
        chosen = {"node": list(EVERY.values())}
        patch.setattr(onnx_runner, "load_model_tests", lambda kind: chosen.get(kind, []))
        tolerances = {name: {"rtol": tolerance(case)} for name, case in CASES.items()}
        runner = onnx_runner.Runner(AttngenBackend, __name__, tolerances)
        tests: type[unittest.TestCase] = runner.test_cases["OnnxBackendNodeModelTest"]
        return tests


@pytest.mark.numba
@pytest.mark.parametrize("name", RUN)
def test_under_the_runner_of_onnx(
    name: str, runner_tests: type[unittest.TestCase], kernel_cache: Path, monkeypatch
) -> None:
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(kernel_cache))
    assert AttngenBackend.is_compatible(CASES[name].model), "else the runner would say nothing"
    with FileLock(kernel_cache / f"onnx-{digest(CASES[name])}.lock"):
        result = runner_tests(f"{name}_cpu").run()
    assert result is not None
    assert result.testsRun == 1
    assert not [*result.failures, *result.errors, *result.skipped]


def test_the_runner_skips_other_devices_and_we_refuse_the_expanded_models(runner_tests) -> None:
    result = runner_tests(f"{RUN[0]}_cuda").run()
    assert [reason for _, reason in result.skipped] == ["Backend doesn't support device CUDA"]
    for case in EXPANDED.values():
        with pytest.raises(BackendIsNotSupposedToImplementIt, match="does not run the operator"):
            AttngenBackend.prepare(case.model)
    assert len(EXPANDED) >= len(CASES) - 1


def model(
    nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], outputs: list[str], opset: int = 25
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, [None] * 4) for n in outputs],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.preview", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


QKV = {name: (FLOAT, ["batch", 3, "length", 8]) for name in "QKV"}
NODE = helper.make_node("Attention", ["Q", "K", "V"], ["Y"], is_causal=1)


@pytest.mark.numba
def test_nodes_in_a_row_constants_and_every_way_to_pass_inputs(kernel_cache: Path) -> None:
    """Two steps of decoding: the second node attends with the present of the first as its past."""
    rng = np.random.default_rng(0)
    first = helper.make_node(
        "Attention", ["Q", "K", "V"], ["Y", "key", "value"], name="first", is_causal=1
    )
    second = helper.make_node(
        "Attention", ["Y", "K2", "V2", "", "key", "value"], ["Z", "", ""], is_causal=1
    )
    two = model([first, second], QKV, ["Z", "key"])
    more = {n: rng.standard_normal((2, 3, 4, 8), dtype="f4") for n in ("K2", "V2")}
    two.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in more.items())
    q, k, v = (rng.standard_normal((2, 3, 4, 8), dtype="f4") for _ in range(3))
    prepared = AttngenBackend.prepare(two, compiler=compiler(kernel_cache))
    found = prepared.run([q, k, v])
    np.testing.assert_array_equal(prepared.run({"Q": q, "K": k, "V": v}).Z, found.Z)
    np.testing.assert_array_equal(found["key"], k)
    assert not np.shares_memory(found.key, k)
    y = onnx.reference.ReferenceEvaluator(two).run(None, {"Q": q, "K": k, "V": v})[0]
    np.testing.assert_allclose(found.Z, y, rtol=1e-5, atol=1e-6)
    one = AttngenBackend.run_node(NODE, [q, k, v], compiler=compiler(kernel_cache))
    assert len(one) == 1
    same = model(
        [helper.make_node("Attention", ["Q"] * 3, ["Y"], is_causal=1)], {"Q": QKV["Q"]}, ["Y"]
    )
    alone = AttngenBackend.prepare(same, compiler=compiler(kernel_cache))
    np.testing.assert_array_equal(alone.run(q).Y, alone.run([q]).Y)
    with pytest.raises(CallValueError, match=r"inputs: expected 3 \(Q, K, V\), got 2"):
        prepared.run([q, k])
    with pytest.raises(CallValueError, match="inputs: 'V' is missing"):
        prepared.run({"Q": q, "K": k})
    with pytest.raises(CallTypeError, match="run takes no option 'device'"):
        prepared.run([q, k, v], device="CPU")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (model([helper.make_node("Add", ["Q", "K"], ["Y"])], QKV, ["Y"]), "the operator Add"),
        (model([], {"Q": QKV["Q"]}, ["Q"]), "a model without nodes"),
        (
            model([NODE], QKV | {"V": (HALF, ["batch", 3, "length", 8])}, ["Y"]),
            "V holds float16 and Q float32: one type is mapped",
        ),
        (
            model([NODE], QKV | {"K": (FLOAT, ["batch", 2, "length", 8])}, ["Y"]),
            "the 2 heads of K do not divide the 3 of Q",
        ),
        (
            model([NODE], {n: (FLOAT, ["batch", "heads", "length", 8]) for n in "QKV"}, ["Y"]),
            "axis 1 of Q is heads, and must be known",
        ),
    ],
    ids=["another operator", "no node", "two types", "heads", "unknown heads"],
)
def test_what_it_refuses_it_refuses_early(given: onnx.ModelProto, reason: str) -> None:
    assert not AttngenBackend.is_compatible(given)
    with pytest.raises(BackendIsNotSupposedToImplementIt, match=f"attngen does not run .*{reason}"):
        AttngenBackend.prepare(given)


def test_other_devices_and_models_that_are_none() -> None:
    right = model([NODE], QKV, ["Y"])
    assert backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA")
    assert backend.is_compatible(right)
    assert not backend.is_compatible(right, "CUDA")
    with pytest.raises(BackendIsNotSupposedToImplementIt, match="the device CUDA"):
        backend.prepare(right, "CUDA")
    wrong = model([helper.make_node("Attention", ["Q", "K"], ["Y"])], QKV, ["Y"])
    with pytest.raises(onnx.checker.ValidationError):
        backend.prepare(wrong)
