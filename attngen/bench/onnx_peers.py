"""ONNX Runtime as a peer: its three attention operators, each as a one-node model.

Inputs and outputs are bound beforehand, so that a call runs the operator and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from attngen.bench.cases import Case
from attngen.bench.peers import CannotDoError, Prepared, core_only, missing_module
from attngen.inputs import Array, Inputs

_IR_VERSION = 10
_CONTRIB = "com.microsoft"
_OPSETS = {"": 23, _CONTRIB: 1}


@dataclass(frozen=True, slots=True)
class _Node:
    """A one-node model with the arrays it works on.

    Attributes:
        inputs: name -> array, in the operator's order.
        outputs: name -> shape, in the operator's order; the first is the result.
        in_place: output name -> the input whose buffer it shares.
    """

    operator: str
    domain: str
    attributes: Mapping[str, Any]
    inputs: Mapping[str, npt.NDArray[Any]]
    outputs: Mapping[str, tuple[int, ...]]
    in_place: Mapping[str, str] = field(default_factory=dict)

    def model(self) -> bytes:
        """The model, serialised."""
        from onnx import helper

        def declare(name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Any:
            element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            return helper.make_tensor_value_info(name, element, shape)

        node = helper.make_node(
            self.operator,
            list(self.inputs),
            list(self.outputs),
            domain=self.domain,
            **self.attributes,
        )
        graph = helper.make_graph(
            [node],
            "attention",
            [declare(name, array.dtype, array.shape) for name, array in self.inputs.items()],
            [declare(name, np.float32, shape) for name, shape in self.outputs.items()],
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        return bytes(model.SerializeToString())

    def prepare(self, threads: int, to_numpy: Callable[[Array], Array]) -> Prepared:
        """A session with everything bound."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        # its threads spin while it works, as always, and not on into the next contestant's turn
        options.add_session_config_entry("session.force_spinning_stop", "1")
        session = onnxruntime.InferenceSession(
            self.model(), options, providers=["CPUExecutionProvider"]
        )
        new = onnxruntime.OrtValue.ortvalue_from_numpy
        values = {name: new(array) for name, array in self.inputs.items()}
        results = {
            name: values[self.in_place[name]]
            if name in self.in_place
            else new(np.full(shape, np.nan, np.float32))
            for name, shape in self.outputs.items()
        }
        binding = session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in results.items():
            binding.bind_ortvalue_output(name, value)
        first = results[next(iter(self.outputs))]

        def call() -> Any:
            session.run_with_iobinding(binding)
            return first

        return Prepared(call, lambda value: to_numpy(value.numpy()))


def _availability() -> str | None:
    return missing_module("onnxruntime") or missing_module("onnx")


def _flat(array: Array) -> Array:
    """(B, S, heads, D) as (B, S, heads * D)."""
    return array.reshape(*array.shape[:2], -1)


def _heads_first(array: Array) -> Array:
    """(B, S, heads, D) as (B, heads, S, D)."""
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3))


def _causal_flag(case: Case) -> int:
    """The value of an is-causal attribute; one query at the end needs no mask at all."""
    if case.window is not None and case.causal:
        raise CannotDoError("no sliding window but as a dense mask")
    if case.causal and case.q_len not in (1, case.kv_len):
        raise CannotDoError("its causal mask of fewer queries than keys is aligned otherwise")
    return int(case.causal and case.q_len > 1)


class OnnxMultiHead:
    """com.microsoft.MultiHeadAttention."""

    name = "ort-mha"

    def available(self) -> str | None:
        """Whether onnxruntime and onnx are installed."""
        return _availability()

    def prepare(self, case: Case, inputs: Inputs, threads: int) -> Prepared:
        """A session of the operator."""
        core = core_only(inputs)
        if case.heads != case.kv_heads:
            raise CannotDoError("no grouped heads")
        node = _Node(
            "MultiHeadAttention",
            _CONTRIB,
            {"num_heads": case.heads, "unidirectional": _causal_flag(case)},
            {"query": _flat(core.q), "key": _flat(core.k), "value": _flat(core.v)},
            {"out": _flat(core.q).shape},
        )
        return node.prepare(threads, lambda out: out.reshape(core.q.shape))


class OnnxGroupQuery:
    """com.microsoft.GroupQueryAttention; with fewer queries than keys, over a shared KV cache."""

    name = "ort-gqa"

    def available(self) -> str | None:
        """Whether onnxruntime and onnx are installed."""
        return _availability()

    def prepare(self, case: Case, inputs: Inputs, threads: int) -> Prepared:
        """A session of the operator; its cache is updated in place, as a server would do it."""
        core = core_only(inputs)
        if not case.causal:
            raise CannotDoError("always causal")
        past = case.kv_len - case.q_len
        cache_shape = (case.batch, case.kv_heads, case.kv_len, case.head_dim)
        empty = np.empty((*cache_shape[:2], 0, case.head_dim), np.float32)
        feeds: dict[str, npt.NDArray[Any]] = {
            "query": _flat(core.q),
            "key": _flat(core.k[:, past:]),
            "value": _flat(core.v[:, past:]),
            "past_key": _heads_first(core.k) if past else empty,
            "past_value": _heads_first(core.v) if past else empty,
            "seqlens_k": np.full(case.batch, case.kv_len - 1, np.int32),
            "total_sequence_length": np.array([case.kv_len], np.int32),
        }
        node = _Node(
            "GroupQueryAttention",
            _CONTRIB,
            {
                "num_heads": case.heads,
                "kv_num_heads": case.kv_heads,
                "local_window_size": -1 if case.window is None else case.window,
            },
            feeds,
            {
                "out": _flat(core.q).shape,
                "present_key": cache_shape,
                "present_value": cache_shape,
            },
            {"present_key": "past_key", "present_value": "past_value"} if past else {},
        )
        return node.prepare(threads, lambda out: out.reshape(core.q.shape))


class OnnxAttention:
    """ai.onnx Attention of opset 23."""

    name = "ort-attention"

    def available(self) -> str | None:
        """Whether onnxruntime and onnx are installed."""
        return _availability()

    def prepare(self, case: Case, inputs: Inputs, threads: int) -> Prepared:
        """A session of the operator."""
        core = core_only(inputs)
        q = _heads_first(core.q)
        node = _Node(
            "Attention",
            "",
            {"is_causal": _causal_flag(case)},
            {"q": q, "k": _heads_first(core.k), "v": _heads_first(core.v)},
            {"out": q.shape},
        )
        return node.prepare(threads, lambda out: out.transpose(0, 2, 1, 3))
