"""An ONNX backend: models whose nodes are Attention and FlexAttention, run by attngen's kernels.

Input: a ModelProto. Output: what ``onnx.backend.base`` asks of a backend. ONNX's own runner takes
the class, or this module::

    onnx.backend.test.BackendTest(AttngenBackend, __name__)

Invariant: a model that cannot be run is refused when it is prepared, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from attngen.errors import CallTypeError, CallValueError, SpecError
from attngen.interop.onnx.attention import AttentionOperator
from attngen.interop.onnx.flex import FlexOperator
from attngen.interop.onnx.nodes import VERSIONS, from_node, is_attention, operator_of, type_of
from attngen.interop.onnx.translation import Array, AttentionOutputs, Compiler


@dataclass(frozen=True, slots=True)
class _Step:
    """One node: its callable, and the names of its inputs and outputs ("" where left out)."""

    operator: AttentionOperator | FlexOperator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, values: dict[str, Array]) -> None:
        """Add the node's outputs to `values`."""
        arrays: list[Any] = [values[name] if name else None for name in self.inputs]
        if isinstance(self.operator, FlexOperator):
            values[self.outputs[0]] = self.operator(*arrays)
            return
        wanted = [o for o, n in zip(AttentionOutputs._fields, self.outputs, strict=False) if n]
        found = self.operator(*arrays, outputs=wanted)
        pairs = zip(self.outputs, found, strict=False)
        values |= {name: value for name, value in pairs if name and value is not None}


class AttngenRep(BackendRep):
    """A prepared model: ``run`` it as often as you like, from any number of threads."""

    def __init__(self, model: onnx.ModelProto, compiler: Compiler | None = None) -> None:
        graph = model.graph
        self._constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        self._inputs = tuple(i.name for i in graph.input if i.name not in self._constants)
        self._outputs = tuple(o.name for o in graph.output)
        self._steps = tuple(
            _Step(operator_of(node, compiler), tuple(node.input), tuple(node.output))
            for node in graph.node
        )

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The model's outputs, a named tuple.

        Args:
            inputs: arrays in the order of the model's inputs, or by name, or the only one.
            kwargs: none are known.

        Raises:
            CallTypeError, CallValueError: naming the input, what was expected and what came.
        """
        if kwargs:
            raise CallTypeError(f"run takes no option {next(iter(kwargs))!r}")
        values = dict(self._constants)
        if isinstance(inputs, Mapping):
            values |= inputs
        else:
            arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(arrays) != len(self._inputs):
                raise CallValueError(
                    f"inputs: expected {len(self._inputs)} ({', '.join(self._inputs)}), got "
                    f"{len(arrays)}"
                )
            values |= zip(self._inputs, arrays, strict=True)
        for name in self._inputs:
            if name not in values:
                raise CallValueError(f"inputs: {name!r} is missing")
        for step in self._steps:
            step.run(values)
        results = (values[name] for name in self._outputs)
        found: tuple[Any, ...] = namedtupledict("Outputs", self._outputs)(*results)
        return found


class AttngenBackend(Backend):
    """attngen as a backend of ONNX, on the CPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is the CPU."""
        return device.partition(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `prepare` takes the model."""
        del kwargs
        return cls.supports_device(device) and unsupported(model) is None

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> AttngenRep:
        """A model, ready to run.

        Args:
            model: its nodes are Attention and FlexAttention.
            device: ``CPU``.
            kwargs: `compiler`, from a spec to its callable; ``attngen.compile`` if not given.
                What else is here is for other backends.

        Raises:
            BackendIsNotSupposedToImplementIt: the model has something else; it says what.
            onnx.checker.ValidationError: the model is none.
        """
        onnx.checker.check_model(model)
        reason = unsupported(model)
        if not cls.supports_device(device):
            reason = f"the device {device}"
        if reason is not None:
            # the runner skips by this class alone, and importing it takes a while
            from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

            raise BackendIsNotSupposedToImplementIt(f"attngen does not run {reason}")
        return AttngenRep(model, kwargs.get("compiler"))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node.

        Args:
            node: an Attention or FlexAttention node.
            inputs: an array for each input that the node names, in order.
            device: ``CPU``.
            outputs_info: not needed.
            kwargs: `opset_version` of the node; `compiler` as for `prepare`.

        Raises:
            BackendIsNotSupposedToImplementIt: the node is something else.
        """
        del outputs_info
        names = list(dict.fromkeys(name for name in node.input if name))
        arrays = [np.asarray(a) for a in inputs]
        kinds = [onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [
                onnx.helper.make_tensor_value_info(n, t, a.shape)
                for n, t, a in zip(names, kinds, arrays, strict=True)
            ],
            [
                onnx.helper.make_tensor_value_info(n, kinds[0], [None] * rank)
                for n, rank in zip(node.output, (arrays[0].ndim, 4, 4, 4), strict=False)
                if n
            ],
        )
        opsets = [onnx.helper.make_opsetid("", kwargs.pop("opset_version", 25))]
        if node.domain:
            opsets.append(onnx.helper.make_opsetid(node.domain, 1))
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return cls.prepare(model, device, **kwargs).run(arrays)


def unsupported(model: onnx.ModelProto) -> str | None:
    """Why a model cannot be run here; None if it can."""
    graph = model.graph
    if not graph.node:
        return "a model without nodes"
    versions = {opset.domain: opset.version for opset in model.opset_import}
    try:
        types = {i.name: t for i in graph.input if (t := type_of(i.type)) is not None}
    except (KeyError, AttributeError):
        return "inputs that are no tensors"
    for node in graph.node:
        if not is_attention(node):
            return f"the operator {node.op_type}"
        since = onnx.defs.get_schema(
            node.op_type, versions.get(node.domain, 1), node.domain
        ).since_version
        if since not in VERSIONS[node.op_type]:
            return f"{node.op_type} of version {since}"
        try:
            operator_of(node)
            if all(name in types for name in node.input[:3]):
                from_node(node, types)
        except SpecError as error:
            return f"{node.op_type} as it is here: {error}"
    return None


is_compatible = AttngenBackend.is_compatible
prepare = AttngenBackend.prepare
run_model = AttngenBackend.run_model
run_node = AttngenBackend.run_node
supports_device = AttngenBackend.supports_device
