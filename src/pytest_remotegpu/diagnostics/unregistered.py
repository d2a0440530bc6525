"""Parameters that a model uses and does not know of: those in a plain list or dictionary.

Knows torch's modules, and nothing of training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

__all__ = ["hidden"]

DEPTH: Final = 3
"""How many containers inside each other are looked into."""


def hidden(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Give the parameters in containers of the model's modules that ``parameters()`` leaves out.

    ``nn.Module`` registers what is an attribute; what lies in a list, a tuple, a set or a
    dictionary that is one, it does not see. Whether they are meant to be used is not known here.

    :return: those that require a gradient, by the name that they would have.
    """
    known = {id(parameter) for parameter in model.parameters()}
    found: dict[str, torch.nn.Parameter] = {}
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            for path, parameter in _inside(value, f"{name}.{attribute}".lstrip("."), DEPTH):
                if id(parameter) not in known and parameter.requires_grad:
                    known.add(id(parameter))
                    found[path] = parameter
    return found


def _inside(value: Any, path: str, depth: int) -> Iterator[tuple[str, torch.nn.Parameter]]:
    import torch  # noqa: PLC0415 -- late

    if isinstance(value, torch.nn.Parameter):
        yield path, value
    elif isinstance(value, torch.nn.Module):
        yield from value.named_parameters(path)
    elif depth:
        for key, part in _parts(value):
            yield from _inside(part, f"{path}.{key}", depth - 1)


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return [*value.items()]
    return [*enumerate(value)] if isinstance(value, list | tuple | set | frozenset) else []
