"""The one table of what a spec may say: keys, kinds, ranges, defaults and their meaning.

The reader checks by it and the JSON Schema is printed from it, so that the two cannot drift.
Rules that relate two keys (``kv_heads`` divides ``heads``) are in :mod:`attngen.spec.rules`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import get_args, get_type_hints

from attngen.dtypes import DTYPES
from attngen.ir.attention import OUTPUTS, SIZES
from attngen.ir.schedule import CpuSchedule, CudaSchedule, Schedule
from attngen.spec.axes import axes_of
from attngen.spec.buckets import MAX_T5_DISTANCE
from attngen.spec.field_kinds import (
    IDENTIFIER,
    AnyNumber,
    Choice,
    Expression,
    Field,
    Flag,
    HeadNumbers,
    Integer,
    Kind,
    Named,
    Number,
    Section,
    Shape,
    Text,
    Words,
)

_CPU_DOCS: dict[str, str] = {
    "lanes": "Elements in one vector; 1 means plain scalars.",
    "tile_scalars": "Keys (in QK^T) or value columns (in PV) of a register tile.",
    "tile_vectors": "Vectors of query rows of a register tile.",
    "block_q": "Query rows that a task works on.",
    "block_kv": "Keys in one step of the online softmax.",
    "short_rows": "Up to this many query rows a kv head, the split-KV kernel runs.",
    "split_kv": "Keys in one split of the split-KV kernel.",
    "projection": "Who multiplies by the weights: generated or blas.",
    "gemm_tile_rows": "Rows in a register tile of the generated GEMM.",
    "gemm_tile_vectors": "Vectors of columns in a register tile of the generated GEMM.",
    "gemm_block_m": "Rows in a cache block of the generated GEMM.",
    "gemm_block_n": "Columns in a cache block of the generated GEMM.",
    "gemm_block_k": "Depth of a cache block of the generated GEMM.",
}


_CUDA_DOCS: dict[str, str] = {
    "warps": "Warps, of 32 threads each, of a block.",
    "block_q": "Query rows that a block of threads works on.",
    "block_kv": "Keys in one step of the online softmax.",
    "depth": "Elements of the head dimension, or keys of V, that are staged at a time.",
    "value_panel": "Value columns that a block of threads works on.",
}


def _schedule_section(schedule: type[Schedule], docs: dict[str, str]) -> Section:
    """One key per decision of `schedule`; the backend judges the values themselves."""
    hints = get_type_hints(schedule)
    kinds: dict[type, Kind] = {int: Integer(0), str: Text("a word", nonempty=True)}
    return Section(
        tuple(
            Field(
                f.name,
                kinds[get_args(hints[f.name])[0]],
                docs[f.name],
                "chosen for the machine; `attngen explain` says why",
            )
            for f in fields(schedule)
        )
    )


_SIZE = Integer(1)
_SIDE = Integer(-1)
_WINDOW_HINT = "write it as window: {left: 255, right: 0}, counts of neighbours with -1 for open"

_MASK_HINT = "such as mask: k <= q and q - k < 512"
_SCORE_HINT = "such as score: score + 0.5 * (k - q)"
_INPUTS_HINT = "such as {doc: {shape: [batch, kv_len], dtype: int}}"

_PLAIN = Section(
    (
        Field(
            "name",
            Text("a Python identifier", IDENTIFIER, nonempty=True),
            "What the generated package is called: an ASCII Python identifier. "
            "A spec does not inherit it.",
            "the file's name without .yaml",
        ),
        Field(
            "description",
            Text(),
            "What this is, for people. A spec does not inherit it.",
            "empty",
        ),
        Field(
            "extends",
            Text("a spec's name or path", nonempty=True),
            "A spec that this one starts from, by name or by path relative to this file. Mappings "
            "are merged key by key, everything else replaces.",
            "nothing",
        ),
        Field(
            "scope",
            Choice(("layer", "core")),
            "layer: x and weights in, projections included. core: q, k, v in.",
            "layer where d_model is given, else core",
        ),
        Field("d_model", _SIZE, "Width of x and of the layer's output.", "none, in a core"),
        Field("heads", _SIZE, "Query heads. Required, here or in the extended spec."),
        Field(
            "kv_heads",
            _SIZE,
            "Key and value heads; divides heads. 1 is MQA, fewer than heads is GQA.",
            "heads",
        ),
        Field(
            "head_dim",
            _SIZE,
            "Width of a query or key head. Required in a core.",
            "d_model / heads",
        ),
        Field("value_dim", _SIZE, "Width of a value head.", "head_dim"),
        Field(
            "causal",
            Choice((True, False, "bottom_right", "top_left")),
            "Whether a query sees no later keys. true is bottom_right: the last query sees the "
            "last key, as a KV cache needs. top_left: the first query sees only the first key.",
            "false",
        ),
        Field(
            "window",
            Section(
                (
                    Field("left", _SIDE, "Earlier keys kept beside the query's own.", "-1, open"),
                    Field("right", _SIDE, "Later keys kept beside the query's own.", "-1, open"),
                ),
                nonempty=True,
            ),
            "A sliding window around each query's position; both sides count neighbours and "
            "exclude the position itself, so that W keys with the query's own are left: W-1.",
            "none",
            hint=_WINDOW_HINT,
        ),
        Field(
            "scale",
            HeadNumbers(),
            "Factor of q.k: any finite number, a list of one for each head, or per_head; calls "
            "then need head_scale=, a learned temperature.",
            "1/sqrt(head_dim)",
        ),
        Field(
            "softcap",
            Number(above=0.0),
            "Scores become softcap * tanh(score / softcap), after the scale.",
            "off",
            hint="leave 'softcap' out for scores without a cap",
        ),
        Field(
            "sink",
            Flag(),
            "A learned logit per head joins the softmax denominator; calls then need sink=.",
            "false",
        ),
        Field(
            "activation",
            Choice(("softmax", "softmax_off_by_one", "sigmoid", "relu")),
            "What makes weights of scores. softmax_off_by_one: exp(s) / (1 + sum(exp(s))), so that "
            "a row may attend to nothing (Miller, 2023). sigmoid: sigmoid(s + activation_bias), "
            "each key by itself (Ramapuram et al., 2024). relu: max(s, 0) / kv_len (Wortsman et "
            "al., 2023).",
            "softmax",
        ),
        Field(
            "activation_bias",
            Number(),
            "Added to the scores of a sigmoid. For a learned one write 0 here and add a side input "
            "in 'score'.",
            "-log(kv_len)",
        ),
        Field(
            "differential",
            Section(
                (
                    Field(
                        "lambda",
                        HeadNumbers(),
                        "What the second map is multiplied by: a number, a list of one for each "
                        "head, or per_head; calls then need head_lambda=. Required.",
                    ),
                ),
            ),
            "Each head is the difference of two attention maps (Ye et al., 2024): q has 2 * heads "
            "heads and k 2 * kv_heads, in pairs, which share a head of v. head_dim is then "
            "d_model / (2 * heads) without being given, and value_dim 2 * head_dim.",
            "one map a head",
            hint="such as differential: {lambda: 0.8}",
        ),
        Field(
            "score",
            Expression(),
            "What becomes of a score, after the scale and before the softcap: an expression over "
            "score, b, h, kv_h, q, k, q_len, kv_len, parameters and side inputs.",
            "score",
            hint=_SCORE_HINT,
        ),
        Field(
            "bias",
            Choice(("alibi", "t5")),
            "What is added to a score after the softcap. alibi: slope[h] * (k - q) with the slopes "
            "of Press et al. (2022) for any number of heads. t5: a learned number for each head "
            "and bucket of distances; calls then need relative_bias=, (heads, buckets).",
            "nothing",
        ),
        Field(
            "t5",
            Section(
                (
                    Field("buckets", Integer(2), "Buckets of distances.", "32"),
                    Field(
                        "max_distance",
                        Integer(2, MAX_T5_DISTANCE),
                        "From this distance on all keys are in one bucket.",
                        "128",
                    ),
                    Field(
                        "bidirectional",
                        Flag(),
                        "Whether half of the buckets are for later keys, as in an encoder; else "
                        "later keys count as distance 0.",
                        "true without causal, else false",
                    ),
                ),
            ),
            "The buckets of bias: t5, as in Raffel et al. (2020): distances up to half of them "
            "have one each, longer ones share them by their logarithm.",
            "the buckets of T5",
            hint="such as t5: {buckets: 32, max_distance: 128}",
        ),
        Field(
            "mask",
            Expression(),
            "Which pairs attend, beside causal and window: a truth value over the positions q and "
            "k and b, h, kv_h, q_len, kv_len, parameters and side inputs.",
            "all",
            hint=_MASK_HINT,
        ),
        Field(
            "prefix",
            Integer(0),
            "Keys at the start that every query sees, as in a prefix language model; the others "
            "are causal.",
            "none",
        ),
        Field(
            "chunk",
            _SIZE,
            "Queries see the keys of their own chunk of so many positions alone, as in Llama 4.",
            "one chunk",
        ),
        Field(
            "dilation",
            _SIZE,
            "Queries see only keys whose distance is a multiple of this.",
            "1, every key",
        ),
        Field(
            "global_tokens",
            Integer(0),
            "Positions at the start that see all and are seen by all, whatever window, chunk and "
            "dilation say, as in Longformer.",
            "none",
        ),
        Field(
            "inputs",
            Named(
                Field(
                    "input",
                    Section(
                        (
                            Field(
                                "shape",
                                Shape(SIZES),
                                "One size for each axis: batch, heads, kv_heads, q_len, kv_len or "
                                "a number. Required.",
                                hint="such as shape: [batch, kv_len]",
                            ),
                            Field(
                                "dtype",
                                Choice(("float", "int", "bool")),
                                "What the array holds: float is the type of the sums, int is "
                                "int64.",
                                "float",
                            ),
                        )
                    ),
                    "An array that mask and score index, and that calls take by this name.",
                    hint=_INPUTS_HINT,
                )
            ),
            "Named arrays for mask and score.",
            "none",
            hint=f"such as inputs: {_INPUTS_HINT.removeprefix('such as ')}",
        ),
        Field(
            "parameters",
            Named(
                Field(
                    "parameter",
                    AnyNumber(),
                    "A number that mask and score may name.",
                )
            ),
            "Named numbers for mask and score.",
            "none",
            hint="such as parameters: {size: 512}",
        ),
        Field(
            "dtype",
            Choice(tuple(DTYPES)),
            "Type of inputs and outputs. float16 and bfloat16 are converted as they are read and "
            "rounded as they are written; sums are float32.",
            "float32",
        ),
        Field(
            "outputs",
            Words(OUTPUTS, "out"),
            "What a call returns: out, and the log-sum-exp of each row where lse is listed. logits "
            "(the scores of all pairs) and probabilities are for debugging, and come from "
            "attngen.interpret alone.",
            "[out]",
            hint="write [out] or [out, lse]",
        ),
        Field(
            "schedule",
            Section(
                (
                    Field(
                        "cpu",
                        _schedule_section(CpuSchedule, _CPU_DOCS),
                        "Decisions for the CPU kernels.",
                        hint="such as cpu: {block_q: 64}",
                    ),
                    Field(
                        "cuda",
                        _schedule_section(CudaSchedule, _CUDA_DOCS),
                        "Decisions for the CUDA kernels.",
                        hint="such as cuda: {block_q: 64}",
                    ),
                ),
            ),
            "Scheduling decisions to fix by hand, per target.",
            "all chosen for the machine",
            hint="such as schedule: {cpu: {block_q: 64}}",
        ),
    ),
    later=(
        *("rope", "norm", "projection", "gate"),
        *("cache", "dropout"),
    ),
)
_SWEEP = Field(
    "sweep",
    axes_of(_PLAIN),
    "What `attngen sweep` measures: keys of the spec, dotted below the top, and batch, q_len, "
    "kv_len, threads and target, each with a list or a range of values; they are crossed.",
    "nothing to sweep",
)

SPEC = Section((*_PLAIN.fields, _SWEEP), _PLAIN.later)
