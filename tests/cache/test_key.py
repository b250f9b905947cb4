"""The key: everything that shapes the code is in it by name, and `why` says what changed."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from pathlib import Path

import pytest

from attngen.cache import Cache, CacheKey, FieldChange, key_for
from attngen.dtypes import FLOAT32, FLOAT64
from attngen.ir.attention import AttentionIR
from attngen.ir.expr import DOT, TRUE, Binary, K, Q
from attngen.ir.kernel import SourcePackage
from attngen.ir.schedule import CpuSchedule, Decision
from attngen.targets import AVX512

IR = AttentionIR(
    name="demo",
    dtype=FLOAT32,
    heads=4,
    kv_heads=2,
    head_dim=8,
    value_dim=8,
    d_model=None,
    query_scale=1 / math.sqrt(8),
    score=DOT,
    mask=TRUE,
    alignment="bottom_right",
    sink=False,
    base="2",
    outputs=("out",),
)
SCHEDULE = CpuSchedule(
    **{  # type: ignore[arg-type]
        f.name: Decision("blas" if f.name == "projection" else 4, "default", "because")
        for f in dataclasses.fields(CpuSchedule)
    }
)
TARGET = dataclasses.replace(AVX512, llvm_cpu="icelake-server", llvm_features="+avx512f,+fma")


def key(ir=IR, schedule=SCHEDULE, target=TARGET, templates="t1") -> CacheKey:
    return key_for(ir, schedule, target, templates)


def changed(other: CacheKey) -> set[str]:
    before, after = dict(key().fields), dict(other.fields)
    assert (key().digest == other.digest) == (before == after)
    return {name for name in before if before[name] != after[name]}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"heads": 8}, "spec.heads"),
        ({"dtype": FLOAT64}, "spec.dtype"),
        ({"query_scale": 0.5}, "spec.query_scale"),
        ({"mask": Binary("le", K, Q)}, "spec.mask"),
        ({"sink": True}, "spec.sink"),
        ({"outputs": ("out", "lse")}, "spec.outputs"),
        ({"description": "shown in the header"}, "spec.description"),
    ],
)
def test_every_meaning_of_a_spec_is_a_field(change: dict[str, object], field: str) -> None:
    assert changed(key(ir=dataclasses.replace(IR, **change))) == {field}


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(CpuSchedule)])
def test_every_decision_is_a_field_and_its_reason_is_not(name: str) -> None:
    def schedule(value: object, why: str) -> CpuSchedule:
        return dataclasses.replace(SCHEDULE, **{name: Decision(value, "spec", why)})

    value = getattr(SCHEDULE, name).value
    assert changed(key(schedule=schedule(value, "another reason"))) == set()
    assert changed(key(schedule=schedule("other", "because"))) == {f"schedule.{name}"}


def test_machine_versions_and_options_are_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite
    import numba
    import numpy as np

    assert changed(key(target=dataclasses.replace(TARGET, llvm_cpu="znver4"))) == {"cpu"}
    assert changed(key(target=dataclasses.replace(TARGET, llvm_features=""))) == {"cpu_features"}
    assert changed(key(templates="t2")) == {"templates"}
    for module in (llvmlite, numba, np):
        with monkeypatch.context() as patch:
            before = key()
            patch.setattr(module, "__version__", "0")
            assert {
                n for (n, a), (_, b) in zip(key().fields, before.fields, strict=True) if a != b
            } == {module.__name__}
    before = key()
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert key() == before
    monkeypatch.setenv("NUMBA_OPT", "1")
    assert key().digest != before.digest


def test_facts_of_the_target_that_generate_nothing_are_not_fields() -> None:
    assert changed(key(target=dataclasses.replace(TARGET, l3_bytes=1))) == set()


def test_the_name_is_part_of_the_digest_and_of_the_folder() -> None:
    other = CacheKey("other", key().fields)
    assert other.digest != key().digest
    assert other.folder_name == f"other-{other.digest[:16]}"


def test_why_names_the_nearest_entry_and_what_differs(
    tmp_path: Path, package: SourcePackage
) -> None:
    cache = Cache(tmp_path)
    far = CacheKey("demo", (("spec", "a"), ("numba", "1"), ("cpu", "x")))
    near = CacheKey("demo", (("spec", "b"), ("numba", "1"), ("cpu", "y")))
    twin = CacheKey("other", (("spec", "b"), ("numba", "2"), ("cpu", "y")))
    for k in (far, near, twin):
        cache.publish(k, package)
    wanted = CacheKey("demo", (("spec", "b"), ("numba", "2"), ("cpu", "y"), ("python", "3")))
    answer = cache.why(wanted)
    assert answer.nearest is not None
    assert answer.nearest.key == near
    assert not answer.is_hit
    assert answer.changes == (
        FieldChange("numba", "1", "2"),
        FieldChange("python", None, "3"),
    )
    assert cache.why(near).is_hit


def test_why_prefers_the_latest_of_equally_near_entries(
    tmp_path: Path, package: SourcePackage
) -> None:
    cache = Cache(tmp_path)
    for i in range(3):
        path = cache.publish(CacheKey("demo", (("spec", str(i)),)), package)
        os.utime(path / "manifest.json", (time.time() + (60 if i == 1 else 0),) * 2)
    nearest = cache.why(CacheKey("demo", (("spec", "new"),))).nearest
    assert nearest is not None
    assert nearest.key.fields == (("spec", "1"),)


def test_why_in_an_empty_cache(tmp_path: Path) -> None:
    answer = Cache(tmp_path).why(CacheKey("demo", ()))
    assert (answer.nearest, answer.changes, answer.is_hit) == (None, (), False)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("1", "2", "field: 1 → 2"),
        (None, "2", "field: (absent) → 2"),
        ("1", "", "field: 1 → (empty)"),
        ("+a,+b,+c,+d", "+a,+b,-c,+d", "field: without +c, with -c"),
        ("x" * 200, "y", f"field: {'x' * 160}… → y"),
    ],
)
def test_a_change_reads_as_one_line(old: str | None, new: str, text: str) -> None:
    assert FieldChange("field", old, new).summary == text
