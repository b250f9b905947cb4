"""PyTorch as a peer: scaled_dot_product_attention, and FlexAttention compiled by Inductor.

Inputs stand in PyTorch's own layout (B, heads, S, head_dim), contiguous, before timing starts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attngen.bench.cases import Case
from attngen.bench.peers import CannotDoError, Prepared, core_only, missing_module
from attngen.inputs import Array, CoreInputs, Inputs, LayerInputs


def _to_numpy(result: Any) -> Array:
    return np.asarray(result.detach().transpose(1, 2).numpy(), dtype=np.float32)


def _heads_first(inputs: CoreInputs) -> tuple[Any, Any, Any]:
    import torch

    def convert(array: Array) -> Any:
        return torch.from_numpy(array).transpose(1, 2).contiguous()

    return convert(inputs.q), convert(inputs.k), convert(inputs.v)


class TorchSdpa:
    """torch.nn.functional.scaled_dot_product_attention, and torch Linear around it for layers."""

    name = "torch-sdpa"

    def available(self) -> str | None:
        """Whether torch is installed."""
        return missing_module("torch")

    def prepare(self, case: Case, inputs: Inputs, threads: int) -> Prepared:
        """SDPA with the flag that the case needs; a window as a boolean mask, its only way."""
        import torch
        import torch.nn.functional as functional

        torch.set_num_threads(threads)
        options: dict[str, Any] = {"enable_gqa": case.heads != case.kv_heads}
        if case.window is not None:
            options["attn_mask"] = _window_mask(case)
        elif case.causal and case.q_len > 1:
            if case.q_len != case.kv_len:
                raise CannotDoError("is_causal is aligned to the top left")
            options["is_causal"] = True
        if isinstance(inputs, LayerInputs):
            return _layer(case, inputs, options)
        q, k, v = _heads_first(inputs)

        def call() -> Any:
            with torch.inference_mode():
                return functional.scaled_dot_product_attention(q, k, v, **options)

        return Prepared(call, _to_numpy, allocates_result=True)


def _window_mask(case: Case) -> Any:
    import torch

    q = torch.arange(case.q_len)[:, None] + (case.kv_len - case.q_len)
    k = torch.arange(case.kv_len)[None, :]
    return (k <= q) & (q - k < (case.window or 0))


def _layer(case: Case, inputs: LayerInputs, options: dict[str, Any]) -> Prepared:
    import torch
    import torch.nn.functional as functional

    x, weights = torch.from_numpy(inputs.x), inputs.weights
    # Linear stores (out, in) and multiplies by its transpose
    w_q, w_k, w_v, w_o = (
        torch.from_numpy(np.ascontiguousarray(w.T))
        for w in (weights.q, weights.k, weights.v, weights.o)
    )

    def heads(projected: Any, count: int) -> Any:
        return projected.view(case.batch, -1, count, case.head_dim).transpose(1, 2)

    def call() -> Any:
        with torch.inference_mode():
            q = heads(functional.linear(x, w_q), case.heads)
            k = heads(functional.linear(x, w_k), case.kv_heads)
            v = heads(functional.linear(x, w_v), case.kv_heads)
            attended = functional.scaled_dot_product_attention(q, k, v, **options)
            joined = attended.transpose(1, 2).reshape(case.batch, case.q_len, -1)
            return functional.linear(joined, w_o)

    return Prepared(
        call,
        lambda result: np.asarray(result.numpy(), dtype=np.float32),
        allocates_result=True,
    )


class FlexAttention:
    """torch.nn.attention.flex_attention, compiled, with its block mask built beforehand."""

    name = "torch-flex"

    def available(self) -> str | None:
        """Whether torch has FlexAttention and a C++ compiler is there for it."""
        import shutil

        if reason := missing_module("torch"):
            return reason
        if not any(shutil.which(compiler) for compiler in ("g++", "clang++", "cl")):
            return "torch.compile needs a C++ compiler"
        return None

    def prepare(self, case: Case, inputs: Inputs, threads: int) -> Prepared:
        """Compile for this case; takes about 20 s."""
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        core = core_only(inputs)
        torch.set_num_threads(threads)
        q, k, v = _heads_first(core)
        block_mask = None
        if case.causal:
            keep = _keeps(case)
            block_mask = create_block_mask(keep, None, None, case.q_len, case.kv_len, device="cpu")
        torch.compiler.reset()
        compiled = torch.compile(flex_attention, dynamic=False)
        enable_gqa = case.heads != case.kv_heads

        def call() -> Any:
            with torch.no_grad():
                return compiled(q, k, v, block_mask=block_mask, enable_gqa=enable_gqa)

        return Prepared(call, _to_numpy, allocates_result=True)


def _keeps(case: Case) -> Any:
    """The case's mask as a FlexAttention mask function."""
    offset, window = case.kv_len - case.q_len, case.window

    def keep(_b: Any, _h: Any, q: Any, k: Any) -> Any:
        if window is None:
            return k <= q + offset
        return (k <= q + offset) & (q + offset - k < window)

    return keep
