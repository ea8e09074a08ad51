"""The factored solve must be the dense one."""

from __future__ import annotations

import pytest
import torch

from steam_engine.errors import EditError
from steam_engine.solve import NullSpaceSolver, RidgeSolver, edit_directions


def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    samples = torch.randn(500, 40)
    c = samples.T @ samples / 500
    return c, torch.randn(7, 40), torch.randn(30, 40), torch.randn(5, 40)


def test_direction_equals_the_dense_fp64_solve() -> None:
    c, keys, neighbours, earlier = problem()
    solver = RidgeSolver(c, 0.5)
    found = edit_directions(solver, [keys], [(neighbours, 1.0), (earlier, 2.0)])[0]
    k, n, e = keys.double(), neighbours.double(), earlier.double()
    ridge = 0.5 * c.double()
    ridge += 1e-6 * ridge.diagonal().mean() * torch.eye(40, dtype=torch.float64)
    a = ridge + k.T @ k / 7 + n.T @ n / 30 + 2 * e.T @ e / 5
    expected = torch.linalg.solve(a, k.mean(0))
    assert (found - expected).abs().max() < 1e-10


def test_shared_delta_is_the_general_ridge_solution() -> None:
    """outer(delta, right) equals R K^T A^-1 with one residual for all keys."""
    c, keys, neighbours, _ = problem()
    solver = RidgeSolver(c, 0.5)
    delta = torch.randn(12, dtype=torch.float64)
    right = edit_directions(solver, [keys], [(neighbours, 1.0)])[0]
    k, n = keys.double().T, neighbours.double().T
    a = solver.ridge + k @ k.T / 7 + n @ n.T / 30
    general = delta[:, None].expand(-1, 7) @ k.T / 7 @ torch.linalg.inv(a)
    assert (torch.outer(delta, right) - general).abs().max() < 1e-10


def test_neighbours_are_protected() -> None:
    c, keys, neighbours, _ = problem()
    solver = RidgeSolver(0.01 * c, 0.5)
    free = edit_directions(solver, [keys], [])[0]
    guarded = edit_directions(solver, [keys], [(neighbours[:5], 1.0)])[0]
    n = neighbours[:5].double()
    assert (n @ guarded).abs().max() < 0.25 * (n @ free).abs().max()
    assert float((keys.double() @ guarded).mean()) > 0.9


def test_weights_of_zero_and_no_keys_change_nothing() -> None:
    c, keys, neighbours, _ = problem()
    solver = RidgeSolver(c, 0.5)
    plain = edit_directions(solver, [keys], [])[0]
    assert torch.equal(plain, edit_directions(solver, [keys], [(neighbours, 0.0), (neighbours[:0], 1.0)])[0])


def test_edits_solved_together_equal_the_dense_solve() -> None:
    c, keys, neighbours, earlier = problem()
    solver = RidgeSolver(c, 0.5)
    found = edit_directions(solver, [keys, earlier], [(neighbours, 1.0)])
    k, n, e = keys.double(), neighbours.double(), earlier.double()
    a = solver.ridge + k.T @ k / 7 + e.T @ e / 5 + n.T @ n / 30
    expected = torch.linalg.solve(a, torch.stack([k.mean(0), e.mean(0)]).T).T
    assert (found - expected).abs().max() < 1e-10


def test_many_keys_and_few_give_the_same_solution() -> None:
    """The Woodbury identity and the dense factorisation, on either side of where one takes over from the other."""
    c, keys, neighbours, _ = problem()
    solver = RidgeSolver(c, 0.5)
    right = torch.randn(40, 3, dtype=torch.float64)
    for n in (13, 14, 30):
        low_rank = [(keys, 1.0), (neighbours[:n], 1.0)]
        a = solver.ridge + sum(u.double().T @ u.double() * (w / len(u)) for u, w in low_rank)
        assert (solver.solve(low_rank, right) - torch.linalg.solve(a, right)).abs().max() < 1e-10


def test_the_null_space_solve_leaves_ordinary_keys_alone() -> None:
    torch.manual_seed(0)
    used = torch.randn(500, 25) @ torch.randn(25, 40)  # ordinary keys span 25 of 40 directions
    c = used.T @ used / 500
    keys = torch.randn(7, 40)
    solver = NullSpaceSolver(c, 1e-3, 1e-3)
    assert solver.basis.shape == (40, 15)
    (right,) = edit_directions(solver, [keys], [(torch.randn(5, 40), 1.0)])
    assert (used.double() @ right).abs().max() < 1e-4 * (keys.double() @ right).abs().mean()
    # In the free directions it is the ridge solution of the projected keys.
    projection = solver.basis @ solver.basis.T
    (alone,) = edit_directions(solver, [keys], [])
    k = keys.double() @ projection
    dense = torch.linalg.solve(1e-3 * c.double().diagonal().mean() * torch.eye(40) + k.T @ k / 7, k.mean(0))
    assert (alone - dense).abs().max() < 1e-6 * dense.abs().max()


def test_a_null_space_that_is_empty_is_refused() -> None:
    c, *_ = problem()
    with pytest.raises(EditError, match="raise null_space"):
        NullSpaceSolver(c, 1e-6, 1.0)
