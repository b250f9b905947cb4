"""The small squares show what a mask lets through, and what only a call's data decides."""

from __future__ import annotations

import numpy as np
import pytest
from pictures.specs import DRAWN, ir_of

from attngen.ir.evaluate import evaluate
from attngen.ir.expr import loads, variables
from attngen.pictures.mask_glyph import CELLS, glyph, mask_grid
from attngen.pictures.steps import for_head


def test_causal_is_a_triangle() -> None:
    grid = mask_grid(ir_of("mha_4096").mask)
    assert grid.length == CELLS
    np.testing.assert_array_equal(grid.certain, np.tri(CELLS))
    np.testing.assert_array_equal(grid.possible, np.tri(CELLS))


@pytest.mark.parametrize(("spec", "length"), [("window", 768), ("chunked_local", 24576)])
def test_the_length_shows_what_the_numbers_mean(spec: str, length: int) -> None:
    assert mask_grid(ir_of(spec).mask).length == length


def test_chunks_are_three_triangles() -> None:
    grid = mask_grid(ir_of("chunked_local").mask)
    blocks = np.kron(np.eye(3), np.ones((CELLS // 3, CELLS // 3)))
    np.testing.assert_array_equal(grid.certain > 0, (blocks > 0) & (np.tri(CELLS) > 0))


def test_data_is_left_open() -> None:
    grid = mask_grid(ir_of("document").mask)
    np.testing.assert_array_equal(grid.certain, 0)
    np.testing.assert_array_equal(grid.possible, np.tri(CELLS))
    assert [cells.tone for cells in glyph(grid, 0, 0, 2)] == ["frame", "unknown"]
    tree = mask_grid(ir_of("tree").mask)
    np.testing.assert_array_equal(tree.certain, np.eye(CELLS))  # a key always sees itself
    np.testing.assert_array_equal(tree.possible, 1)


def small(spec: str) -> bool:
    """Whether all pairs of positions can be looked at."""
    mask = for_head(ir_of(spec), ir_of(spec).mask, 0)
    return not loads(mask) and mask_grid(mask).length <= 1536


@pytest.mark.parametrize("spec", [spec for spec in DRAWN if small(spec)])
def test_shares_are_those_of_the_whole_mask(spec: str) -> None:
    ir = ir_of(spec)
    mask = for_head(ir, ir.mask, 1 if ir.heads > 1 else 0)
    assert not variables(mask) & {"h", "kv_h"}
    grid = mask_grid(mask)
    size = grid.length
    q, k = np.arange(size)[:, None], np.arange(size)[None]
    env = {"q": q, "k": k, "q_len": size, "kv_len": size, "b": 0}
    full = np.broadcast_to(np.asarray(evaluate(mask, env), float), (size, size))
    step = size / CELLS
    cells = np.floor(np.arange(size) / step).astype(int)
    exact = np.array(
        [[full[np.ix_(cells == i, cells == j)].mean() for j in range(CELLS)] for i in range(CELLS)]
    )
    # twelve positions a cell and direction are looked at: all of a small cell, a sample of others
    np.testing.assert_allclose(grid.certain, exact, atol=0.0 if step <= 12 else 0.35)
    assert abs(grid.certain.mean() - exact.mean()) < 0.02
