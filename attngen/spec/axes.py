"""What a sweep may go through: every key of a spec by its dotted name, and the sizes of a call.

Input: the table of a spec's keys. Output: the kind of the key ``sweep``. What a spec *is* (its
name, its description, what it extends) stays out of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from attngen.spec.field_kinds import Axes, Choice, Field, Integer, Named, Section

MAX_THREADS = 4096
GROUPS = ("cross", "zip")
WHERE = "where"
GROUP_DOCS = {
    "cross": "Keys whose values are all combined, as those of the keys beside it are.",
    "zip": "Keys that go through their values together; a list for several such groups.",
    "where": "Conditions that a point fulfils, such as heads * head_dim == 4096, over the numbers "
    "of the spec and the call; window.left is window_left there.",
}
_IDENTITY = frozenset({"name", "description", "extends"})

CALL: tuple[Field, ...] = (
    Field("batch", Integer(1), "Sequences in the calls that are timed.", "1"),
    Field("q_len", Integer(1), "Queries of a sequence in those calls.", "2048"),
    Field("kv_len", Integer(1), "Keys of a sequence in those calls.", "q_len"),
    Field("threads", Integer(1, MAX_THREADS), "Threads that kernels run on.", "all cores"),
    Field("target", Choice(("cpu", "cuda")), "The kind of machine that computes.", "cpu"),
)
"""The sizes of a call, which no spec has."""

CALL_KEYS: tuple[str, ...] = tuple(field.name for field in CALL)


def axes_of(spec: Section) -> Axes:
    """The kind of ``sweep`` in a spec with these keys."""
    keys = [f for f in spec.fields if f.name not in _IDENTITY]
    named = tuple(
        Field(f.name, f.kind.item.kind, f.kind.item.doc, hint=f.kind.item.hint)
        for f in keys
        if isinstance(f.kind, Named)
    )
    return Axes((*CALL, *_dotted(keys, "")), named)


def _dotted(fields: list[Field], prefix: str) -> Iterator[Field]:
    for field in fields:
        name = f"{prefix}{field.name}"
        yield Field(name, field.kind, field.doc, field.default, field.hint)
        if isinstance(field.kind, Section):
            yield from _dotted(list(field.kind.fields), f"{name}.")
