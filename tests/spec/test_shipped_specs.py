"""The specs that ship: each reads and elaborates, and says what the model's own files say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from attngen.resources import specs_dir
from attngen.spec.elaborate import elaborate
from attngen.spec.model import Window
from attngen.spec.reader import read_spec

PATHS = sorted(specs_dir().glob("*.yaml"))

# d_model, heads, kv_heads, head_dim, keys that a query sees to its left (itself included)
MODELS = {
    "bert_base": (768, 12, 12, 64, None),
    "falcon_7b": (4544, 71, 1, 64, None),
    "gemma2_9b_global": (3584, 16, 8, 256, None),
    "gemma2_9b_local": (3584, 16, 8, 256, 4096),
    "gpt2": (768, 12, 12, 64, None),
    "gpt_neox_20b": (6144, 64, 64, 96, None),
    "gpt_oss_20b_global": (2880, 64, 8, 64, None),
    "gpt_oss_20b_local": (2880, 64, 8, 64, 128),
    "llama3_8b": (4096, 32, 8, 128, None),
    "mha_4096": (4096, 32, 32, 128, None),
    "mistral_7b": (4096, 32, 8, 128, 4096),
    "phi3_mini_4k": (3072, 32, 32, 96, 2048),
    "qwen2_5_7b": (3584, 28, 4, 128, None),
}


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_reads_and_elaborates(path: Path) -> None:
    spec = read_spec(path)
    assert spec.name == path.stem
    assert spec.description.endswith(".")
    assert read_spec(path.stem) == spec
    ir = elaborate(spec)
    assert (ir.name, ir.heads) == (spec.name, spec.heads)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models(name: str) -> None:
    spec = read_spec(name)
    d_model, heads, kv_heads, head_dim, keys = MODELS[name]
    assert (spec.d_model, spec.heads, spec.kv_heads) == (d_model, heads, kv_heads)
    assert spec.head_dim == spec.value_dim == head_dim
    assert spec.window == (None if keys is None else Window(left=keys - 1))
    assert spec.causal == ("none" if name == "bert_base" else "bottom_right")
    assert spec.sink == name.startswith("gpt_oss")
    assert spec.softcap == (50.0 if name.startswith("gemma2") else None)
    rotary = name not in ("bert_base", "gpt2", "mha_4096")
    assert rotary == ("without rotary embedding" in spec.description)


@pytest.mark.parametrize("model", ["gemma2_9b", "gpt_oss_20b"])
def test_local_and_global_layers_differ_by_the_window_alone(model: str) -> None:
    local, every = read_spec(f"{model}_local"), read_spec(f"{model}_global")
    assert local.window is not None
    alike = replace(local, window=None, name=every.name, description=every.description)
    assert alike == every


def test_gemma_scales_by_its_head_width() -> None:
    assert read_spec("gemma2_9b_global").scale == 256**-0.5


def test_the_small_ones_cover_the_features() -> None:
    assert read_spec("gqa").kv_heads == 2
    assert read_spec("mqa").kv_heads == 1
    assert read_spec("window").window == Window(left=255)
    assert read_spec("softcap").softcap == 30.0
    assert read_spec("sinks").sink
    assert read_spec("cross_attention").value_dim != read_spec("cross_attention").head_dim


def test_the_reference_stays_as_short_as_promised() -> None:
    text = (specs_dir() / "mha_4096.yaml").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 5
