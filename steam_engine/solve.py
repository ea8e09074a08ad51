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
        """A^-1 right: by the Woodbury identity, or densely where the keys are so many that it costs more.

        Args:
            low_rank: pairs (keys [n, d_ff], weight); each adds weight * keys^T keys / n to A.
            right: [d_ff, n_right].

        Returns:
            [d_ff, n_right] in the solver's dtype.
        """
        b = right.to(self.ridge.dtype)
        parts = [
            keys.to(self.ridge.dtype) * (weight / len(keys)) ** 0.5 for keys, weight in low_rank if len(keys) and weight
        ]
        y: torch.Tensor = torch.cholesky_solve(b, self._factor)
        if not parts:
            return y
        u = torch.cat(parts)  # [n, d_ff]
        if 2 * len(u) > u.shape[1]:
            dense: torch.Tensor = torch.linalg.cholesky(self.ridge + u.T @ u)
            return torch.cholesky_solve(b, dense)
        z = torch.cholesky_solve(u.T, self._factor)  # [d_ff, n]
        small = torch.eye(len(u), dtype=u.dtype, device=u.device) + u @ z
        correction: torch.Tensor = z @ torch.linalg.solve(small, u @ y)
        return y - correction


def edit_directions(
    solver: RidgeSolver, keys: Sequence[torch.Tensor], protected: Sequence[tuple[torch.Tensor, float]]
) -> torch.Tensor:
    """The right factors of edits that are solved together: `W += sum of outer(delta_i, right_i)`.

    With one delta shared by all keys of an edit, the ridge least squares of MEMIT (eq. 14) is R K^T A^-1 = sum of
    outer(delta_i, A^-1 mean(K_i)), where A = lambda_C C + sum of K_i K_i^T / n_i + protected keys.

    Args:
        solver: holds lambda_C C.
        keys: for each edit, [n_i, d_ff], keys of its subject.
        protected: (keys [m, d_ff], weight) whose outputs shall not move.

    Returns:
        [n_edits, d_ff] in the solver's dtype.
    """
    means = torch.stack([own.to(solver.ridge.dtype).mean(0) for own in keys])
    return solver.solve([*((own, 1.0) for own in keys), *protected], means.T).T
