"""Closed-form weight change for given keys and one delta. The solver knows nothing about tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class RidgeSolver:
    """Solves with A = lambda_C * C + sum_i U_i^T U_i for low-rank U_i, after one Cholesky of the first term.

    Args:
        moments: C = E[k k^T], [d_ff, d_ff].
        weight: lambda_C.
    """

    def __init__(self, moments: torch.Tensor, weight: float) -> None:
        # fp64 where the device has it (mps has not); a jitter relative to the mean keeps C positive definite.
        dtype = torch.float32 if moments.device.type == "mps" else torch.float64
        c = weight * moments.to(dtype)
        jitter = 1e-6 * c.diagonal().mean().clamp(min=torch.finfo(dtype).tiny)
        self.ridge = c + jitter * torch.eye(len(c), dtype=dtype, device=c.device)
        self._factor = torch.linalg.cholesky(self.ridge)

    def solve(self, low_rank: Sequence[tuple[torch.Tensor, float]], right: torch.Tensor) -> torch.Tensor:
        """A^-1 right by the Woodbury identity.

        Args:
            low_rank: pairs (keys [n, d_ff], weight); each adds weight * keys^T keys / n to A.
            right: [d_ff].

        Returns:
            [d_ff] in the solver's dtype.
        """
        b = right.to(self.ridge.dtype)
        y: torch.Tensor = torch.cholesky_solve(b[:, None], self._factor)[:, 0]
        parts = [
            keys.to(self.ridge.dtype) * (weight / len(keys)) ** 0.5 for keys, weight in low_rank if len(keys) and weight
        ]
        if not parts:
            return y
        u = torch.cat(parts)  # [n, d_ff]
        z = torch.cholesky_solve(u.T, self._factor)  # [d_ff, n]
        small = torch.eye(len(u), dtype=u.dtype, device=u.device) + u @ z
        correction: torch.Tensor = z @ torch.linalg.solve(small, u @ y)
        return y - correction


def edit_direction(
    solver: RidgeSolver, keys: torch.Tensor, protected: Sequence[tuple[torch.Tensor, float]]
) -> torch.Tensor:
    """The right factor [d_ff] of `W += outer(delta, right)` for one delta shared by all keys.

    It is R K^T A^-1 / n with A = lambda_C C + K K^T / n + protected keys (DESIGN: many keys, one delta; the ridge
    least squares of MEMIT, eq. 14, with equal residuals).

    Args:
        solver: holds lambda_C C.
        keys: [n, d_ff], keys of the edited subject.
        protected: (keys [m, d_ff], weight) whose outputs shall not move.
    """
    return solver.solve([(keys, 1.0), *protected], keys.to(solver.ridge.dtype).mean(0))
