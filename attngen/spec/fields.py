"""The one table of what a spec may say: keys, kinds, ranges, defaults and their meaning.

The reader checks by it and the JSON Schema is printed from it, so that the two cannot drift.
Rules that relate two keys (``kv_heads`` divides ``heads``) are in :mod:`attngen.spec.rules`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeAlias, get_args, get_type_hints

from attngen.dtypes import DTYPES
from attngen.ir.schedule import CpuSchedule

SIZE_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `minimum` to `maximum`."""

    minimum: int
    maximum: int = SIZE_MAX


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number, greater than `above` where that is given."""

    above: float | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    """``true`` or ``false``."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text; `pattern` is a regular expression for all of it, and `expected` its name."""

    expected: str = "a text"
    pattern: str = ""
    nonempty: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words or truth values; `later` are words that a coming version takes."""

    options: tuple[bool | str, ...]
    later: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Words:
    """A list of distinct words, `required` among them."""

    options: tuple[str, ...]
    required: str


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with the keys of `fields`; `later` are keys that a coming version takes."""

    fields: tuple[Field, ...]
    later: tuple[str, ...] = ()
    nonempty: bool = False

    def field(self, name: str) -> Field | None:
        """The field of that name."""
        return next((f for f in self.fields if f.name == name), None)


Kind: TypeAlias = Integer | Number | Flag | Text | Choice | Words | Section


@dataclass(frozen=True, slots=True)
class Field:
    """One key.

    Attributes:
        doc: its meaning, in one or two sentences; shown by editors.
        default: what holds where the key is absent, in words.
        hint: what to do about a value of the wrong kind or range, where that is not obvious.
    """

    name: str
    kind: Kind
    doc: str
    default: str = ""
    hint: str = ""


_SCHEDULE_DOCS: dict[str, str] = {
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


def _cpu_section() -> Section:
    """One key per decision of CpuSchedule; the backend judges the values themselves."""
    hints = get_type_hints(CpuSchedule)
    kinds: dict[type, Kind] = {int: Integer(0), str: Text("a word", nonempty=True)}
    return Section(
        tuple(
            Field(
                f.name,
                kinds[get_args(hints[f.name])[0]],
                _SCHEDULE_DOCS[f.name],
                "chosen for the machine; `attngen explain` says why",
            )
            for f in fields(CpuSchedule)
        )
    )


_SIZE = Integer(1)
_SIDE = Integer(-1)
_WINDOW_HINT = "write it as window: {left: 255, right: 0}, counts of neighbours with -1 for open"

SPEC = Section(
    (
        Field(
            "name",
            Text("a Python identifier", r"[A-Za-z_][A-Za-z0-9_]{0,63}", nonempty=True),
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
        Field("scale", Number(), "Factor of q.k, any finite number.", "1/sqrt(head_dim)"),
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
            "dtype",
            Choice(tuple(DTYPES), later=("float16", "bfloat16")),
            "Type of inputs and outputs.",
            "float32",
        ),
        Field(
            "outputs",
            Words(("out", "lse"), "out"),
            "What a call returns: out, and the log-sum-exp of each row where lse is listed.",
            "[out]",
            hint="write [out] or [out, lse]",
        ),
        Field(
            "schedule",
            Section(
                (
                    Field(
                        "cpu",
                        _cpu_section(),
                        "Decisions for the CPU kernels.",
                        hint="such as cpu: {block_q: 64}",
                    ),
                ),
                later=("cuda",),
            ),
            "Scheduling decisions to fix by hand, per target.",
            "all chosen for the machine",
            hint="such as schedule: {cpu: {block_q: 64}}",
        ),
    ),
    later=(
        *("bias", "mask", "score", "inputs", "rope", "norm", "projection", "gate"),
        *("cache", "sweep", "dropout"),
    ),
)
