"""Numbers of any dtype as doubles, in which differences and norms are taken.

Knows torch's dtypes, and nothing of what is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["doubled", "magnitude"]


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    """Give a tensor in float64, and a complex one as pairs of it in one more dimension.

    A cast alone takes the imaginary part away, and with it what is wrong there. The norm of the
    pairs is that of the complex numbers.
    """
    import torch  # noqa: PLC0415 -- late

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double()


def magnitude(tensor: torch.Tensor) -> torch.Tensor:
    """Give the Euclidean norm of a tensor of any dtype, in float32.

    Sums of squares in 16 bits would overflow; a complex number counts with its absolute value.
    """
    return (tensor.abs() if tensor.is_complex() else tensor).float().norm()
