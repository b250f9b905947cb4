"""Names that generated code uses itself, so that no side input may have them.

Input: a name. Output: whether it is taken. A test holds the list against every name that the
generated kernels have.
"""

from __future__ import annotations

import builtins
import re

_CALL = """
    alibi_slopes attend attention cache context cu_seqlens cu_seqlens_k cu_seqlens_q dropout
    gate head_lambda head_scale inputs k_bias key_lengths keys layer lengths lse mask norm
    o_bias out q_bias query_lengths relative_bias return_lse rope self seqlens sink t5_buckets
    table v v_bias value values weights workers x
"""
_PATTERNS = re.compile(
    r"_.*|v_.*|[A-Z][A-Z0-9_]*|.*_(stride|size)(\d+|s)|.*_[qk]_(min|max)|.*_(bounds|granules)"
    r"|(old_max|row_max|row_sum|weight|rescale|dot|rest|key|out|[koqsvw])\d+(_\d+)?"
    r"|(score|weight|share|keep|always|possible|key_first|key_last)(_\d+)+"
    r"|[qkh]_(first|last)"
)


def is_reserved(name: str) -> bool:
    """Whether a side input must not be called `name`."""
    return name in _NAMES or _PATTERNS.fullmatch(name) is not None or hasattr(builtins, name)


_KERNEL = """
    above add_values arguments array array_at arrays at attend_block attend_maps attend_split b
    base batch bit block block_q blocks can_take column combine copy_row count counters cuda d
    describe done dot element end end_key exp exp2 factor fetch_add fetched find_sequence finite
    first first_head first_key first_row floats_at floor forward fresh from full group group_max
    group_sum h halves has_lse head head_step heads heads_of_a_task held hidden highest i index
    integers_at inverse iota is_finite item j k k_base k_ends k_first k_last k_start keep kept
    key key_first key_last key_range kv kv_h kv_head kv_heads kv_len lane lanes last last_key
    layout load_keys load_queries load_values log log2 log2_sum logit lower lse map_step
    mark_hidden mask_panel mask_row mask_rows maxima memory merge merge_maps merged
    multiply_slices nan narrow narrowed njit none np numba number numbered offset old_max output
    output_tile output_without_leaks outputs panel panels panels_end partial parts place places
    plan pool position positions prefetch prefetch_first prefetch_row prefetch_rows probe q
    q_base q_ends q_len q_start query range rescale rescale_outputs rest row row_block
    row_blocks row_group row_max row_of row_scale row_sum rows rows_of run_workers scale score
    score_keys score_panel score_row score_rows score_tile score_tile_row score_tile_rows scores
    second seen sequence sequences share shared shared_memory shift shrink simd sink_logit size
    sizes slot softmax_panel softmax_row softmax_rows source split splits sqrt stack staged
    start starts state step store_outputs store_scores stored_at strides sums tanh target task
    task_count tasks thread tile tile_bounds top total truth truth_bounds truths_at types
    uniform unit units value values weigh_tile_row weigh_tile_rows weigh_values
    weigh_without_leaks weight weights which widen widened work worker workers workspace
    WorkspacePool workspaces
"""
_NAMES = frozenset(_CALL.split()) | frozenset(_KERNEL.split())
