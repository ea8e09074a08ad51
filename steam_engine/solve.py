"""Closed-form weight change for given keys and one delta. The solver knows nothing about tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from steam_engine.errors import EditError

LowRank = Sequence[tuple[torch.Tensor, float]]  # (keys [n, d_ff], weight): adds weight * keys^T keys / n to A

PRECISIONS = {"float64": torch.float64, "float32": torch.float32}


class Solver(Protocol):
    """Solves with A = what the second moments say + low-rank terms."""

    device: torch.device
    dtype: torch.dtype

    def solve(self, low_rank: LowRank, right: torch.Tensor) -> torch.Tensor:
        """A^-1 right, [d_ff, n_right] in the solver's dtype."""
        ...


def solve_device(device: torch.device, precision: torch.dtype = torch.float64) -> torch.device:
    """Where the solves for a model on `device` are made: mps has no fp64."""
    return torch.device("cpu") if device.type == "mps" and precision == torch.float64 else device


def _factored(matrix: torch.Tensor) -> torch.Tensor:
    factor: torch.Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if bool(failed.any()):
        raise EditError("The solve fails in this precision; nothing has changed. Use solve_precision float64.")
    return factor


def _stacked(low_rank: LowRank, dtype: torch.dtype) -> torch.Tensor | None:
    """U [n, d_ff] with U^T U = the sum of the low-rank terms."""
    parts = [keys.to(dtype) * (weight / len(keys)) ** 0.5 for keys, weight in low_rank if len(keys) and weight]
    return torch.cat(parts) if parts else None


class RidgeSolver:
    """Solves with A = lambda_C * C + sum_i U_i^T U_i for low-rank U_i, after one Cholesky of the first term.

    Args:
        moments: C = E[k k^T], [d_ff, d_ff].
        weight: lambda_C.
        dtype: of the solve.

    Raises:
        EditError: the matrix is not positive definite in that precision.
    """

    def __init__(self, moments: torch.Tensor, weight: float, dtype: torch.dtype = torch.float64) -> None:
        self.device, self.dtype = moments.device, dtype
        c = weight * moments.to(dtype)
        # A jitter relative to the mean keeps C positive definite, by more where rounding is coarser.
        jitter = (1e-6 if dtype == torch.float64 else 1e-4) * c.diagonal().mean().clamp(min=torch.finfo(dtype).tiny)
        self.ridge = c + jitter * torch.eye(len(c), dtype=dtype, device=c.device)
        self._factor = _factored(self.ridge)

    def solve(self, low_rank: LowRank, right: torch.Tensor) -> torch.Tensor:
        """A^-1 right: by the Woodbury identity, or densely where the keys are so many that it costs more.

        Args:
            low_rank: pairs (keys [n, d_ff], weight); each adds weight * keys^T keys / n to A.
            right: [d_ff, n_right].

        Returns:
            [d_ff, n_right] in the solver's dtype.
        """
        b = right.to(self.dtype)
        y: torch.Tensor = torch.cholesky_solve(b, self._factor)
        u = _stacked(low_rank, self.dtype)
        if u is None:
            return y
        if 2 * len(u) > u.shape[1]:
            dense: torch.Tensor = torch.cholesky_solve(b, _factored(self.ridge + u.T @ u))
            return dense
        z = torch.cholesky_solve(u.T, self._factor)  # [d_ff, n]
        small = torch.eye(len(u), dtype=u.dtype, device=u.device) + u @ z
        correction: torch.Tensor = z @ torch.linalg.solve(small, u @ y)
        return y - correction


class NullSpaceSolver:
    """AlphaEdit's solve (Fang et al. 2025, arXiv 2410.02355, eq. 10-13): the change lies in directions that ordinary
    text hardly uses, so whatever the edit, it moves ordinary keys next to not at all.

    The published threshold on eigenvalues of C is a number for one model; here it is relative to their mean. The
    ridge term is the paper's identity, scaled likewise.

    Args:
        moments: C = E[k k^T], [d_ff, d_ff].
        threshold: directions whose eigenvalue is below this share of the mean eigenvalue are free.
        weight: of the ridge term, in mean eigenvalues.
        dtype: of the solve.

    Raises:
        EditError: no direction is free.
    """

    def __init__(
        self, moments: torch.Tensor, threshold: float, weight: float, dtype: torch.dtype = torch.float64
    ) -> None:
        self.device, self.dtype = moments.device, dtype
        values, vectors = torch.linalg.eigh(moments.to(self.dtype))
        mean = values.mean()
        free = values < threshold * mean
        if not bool(free.any()):
            raise EditError(f"No direction of the keys is unused below {threshold:g} of the mean; raise null_space.")
        self.basis = vectors[:, free]  # [d_ff, n_free]
        self._ridge = weight * mean

    def solve(self, low_rank: LowRank, right: torch.Tensor) -> torch.Tensor:
        """P x with P the projection on the free directions, as `RidgeSolver.solve`."""
        small = self._ridge * torch.eye(self.basis.shape[1], dtype=self.dtype, device=self.device)
        u = _stacked(low_rank, self.dtype)
        if u is not None:
            projected = u @ self.basis  # [n, n_free]
            small = small + projected.T @ projected
        factor = _factored(small)
        found: torch.Tensor = self.basis @ torch.cholesky_solve(self.basis.T @ right.to(self.dtype), factor)
        return found


def edit_directions(solver: Solver, keys: Sequence[torch.Tensor], protected: LowRank) -> torch.Tensor:
    """The right factors of edits that are solved together: `W += sum of outer(delta_i, right_i)`.

    With one delta shared by all keys of an edit, the ridge least squares of MEMIT (eq. 14) is R K^T A^-1 = sum of
    outer(delta_i, A^-1 mean(K_i)), where A = lambda_C C + sum of K_i K_i^T / n_i + protected keys.

    Args:
        solver: holds what C says.
        keys: for each edit, [n_i, d_ff], keys of its subject.
        protected: (keys [m, d_ff], weight) whose outputs shall not move.

    Returns:
        [n_edits, d_ff] in the solver's dtype.
    """
    means = torch.stack([own.to(solver.dtype).mean(0) for own in keys])
    return solver.solve([*((own, 1.0) for own in keys), *protected], means.T).T
