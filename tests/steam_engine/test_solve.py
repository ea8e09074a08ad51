"""The factored solve must be the dense one."""

from __future__ import annotations

import torch

from steam_engine.solve import RidgeSolver, edit_directions


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
