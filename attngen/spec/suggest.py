"""What to write instead: nearest words, known synonyms, divisors close by.

Input: what someone wrote and what would be legal. Output: the text of a hint, or nothing where no
legal value is near enough to be worth naming.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from math import isqrt

SYNONYMS: dict[str, str] = {
    **dict.fromkeys(
        ("num_heads", "n_heads", "n_head", "num_attention_heads", "num_q_heads", "nheads"), "heads"
    ),
    **dict.fromkeys(
        ("num_kv_heads", "n_kv_heads", "num_key_value_heads", "n_query_groups", "kv_head"),
        "kv_heads",
    ),
    **dict.fromkeys(
        ("hidden_size", "embed_dim", "n_embd", "d", "dim", "width", "model_dim"), "d_model"
    ),
    **dict.fromkeys(
        ("head_size", "d_head", "d_k", "qk_head_dim", "attention_head_size"), "head_dim"
    ),
    **dict.fromkeys(("v_head_dim", "d_v", "v_dim"), "value_dim"),
    **dict.fromkeys(("is_causal", "causal_mask"), "causal"),
    **dict.fromkeys(("sliding_window", "window_size", "local_window"), "window"),
    **dict.fromkeys(("sm_scale", "softmax_scale", "scaling"), "scale"),
    **dict.fromkeys(
        ("logits_soft_cap", "soft_cap", "attn_logit_softcapping", "logit_softcapping"), "softcap"
    ),
    **dict.fromkeys(("sinks", "s_aux", "attention_sink", "attention_sinks"), "sink"),
    **dict.fromkeys(("torch_dtype", "precision", "data_type"), "dtype"),
    **dict.fromkeys(("fp16", "f16", "half", "float_16"), "float16"),
    **dict.fromkeys(("bf16", "brain_float", "bfloat_16"), "bfloat16"),
    **dict.fromkeys(("fp32", "f32", "float", "single", "float_32"), "float32"),
    **dict.fromkeys(("fp64", "f64", "double", "float_64"), "float64"),
    **dict.fromkeys(("inherits", "base", "parent", "include"), "extends"),
    **dict.fromkeys(("return_lse", "output"), "outputs"),
    **dict.fromkeys(("desc", "comment", "summary"), "description"),
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely stands for."""
    choices = list(known)
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")[:60]
    if plain in choices:
        return plain
    if (synonym := SYNONYMS.get(plain)) in choices:
        return synonym
    found = difflib.get_close_matches(plain, choices, n=1, cutoff=0.6)
    return found[0] if found else None


def either(words: Sequence[str]) -> str:
    """``a, b or c``."""
    return _series(words, "or")


def both(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return _series(words, "and")


def _series(words: Sequence[str], last: str) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def divisors(number: int) -> list[int]:
    """All divisors of a positive `number`, ascending."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def divisors_near(number: int, wanted: int, count: int = 6) -> list[int]:
    """At most `count` divisors of `number`, those whose ratio to `wanted` is nearest one."""

    def distance(divisor: int) -> tuple[float, int]:
        return max(divisor / wanted, wanted / divisor), divisor

    return sorted(sorted(divisors(number), key=distance)[:count])
