"""What a suite of checks may be asked: the options, read from a command line and written to one.

Knows the names of checks. Must import no torch: it is asked on hosts that have none.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_remotegpu.diagnostics import order
from pytest_remotegpu.diagnostics.faults import NotMeantError

__all__ = ["FOLDER", "Asked", "add", "read", "words"]

FOLDER: Final = "remotegpu-diagnosis"
"""Where the report goes unless said."""
MOST_RANKS: Final = 64
LARGEST_SEED: Final = 2**32 - 2
"""numpy's is one more; the second batch takes the next one."""

PARTS: Final = {
    "batch": "a batch, a function that makes one, a data set or a loader (make_batch, ...)",
    "loss": "gives the loss of (model, batch), or of (output, target) (loss, ...)",
    "optimizer": "makes the optimizer of a model (make_optimizer)",
    "train_step": "your training step of (model, optimizer, batch) (train_step)",
    "accumulate": "your loop over micro-batches, of (model, micro_batches) (accumulate)",
    "count": "how many tokens or samples of a batch its loss is the mean over (count)",
    "wrap": "what ranks train, of (model): DistributedDataParallel by default (wrap_model)",
    "rank_loss": "what a rank calls backward() on, of (model, batch) (rank_loss)",
}
"""What the suite takes from the user besides the model, with the name that it is found under."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a suite is asked.

    :ivar parts: by the keys of :data:`PARTS`, only what was named: ``name`` or ``module:name``.
    :ivar only: names of checks, empty for all. :ivar device: empty: a card where one is.
    :ivar away: whether somebody elsewhere says where the report is.
    :ivar ranks: 0 for none. :ivar backend: of ``torch.compile``, empty where it is not asked for.
    """

    target: str
    parts: dict[str, str] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    seed: int = 0
    device: str = ""
    ranks: int = 0
    backend: str = ""
    out: str = FOLDER
    json: bool = False
    away: bool = False

    def wants(self, step: order.Step) -> str:
        """Say why a check is not wanted; nothing where it is."""
        if step.name in self.skip:
            return "--skip names it"
        if self.only and step.name not in self.only:
            return "--only does not name it"
        given = {"": True, "--compile": bool(self.backend), "--ranks": self.ranks > 0}
        return "" if given[step.option] else f"it is made with {step.option} only"


def add(parser: argparse.ArgumentParser) -> None:
    """Let a command take the options."""
    parser.add_argument(
        "target",
        nargs="?",
        metavar="MODULE:FACTORY",
        help="what makes the model, without arguments",
    )
    parts = parser.add_argument_group(
        "what belongs to the model",
        "NAME is in the factory's module, MODULE:NAME elsewhere; in parentheses what is found "
        "there by itself.",
    )
    for name, text in PARTS.items():
        parts.add_argument(f"--{name.replace('_', '-')}", metavar="NAME", default="", help=text)
    parts.add_argument(
        "--fixed", action="append", default=[], metavar="PATTERN",
        help="names of parameters that need not learn, such as encoder.*",
    )  # fmt: skip
    suite = parser.add_argument_group("the checks")
    suite.add_argument("--list", action="store_true", help="only show them, in order")
    for name, text in (("only", "make these alone"), ("skip", "leave these out")):
        suite.add_argument(
            f"--{name}", action="append", default=[], metavar="CHECK", help=f"{text}, by commas"
        )
    suite.add_argument("--compile", action="store_true", help="compare with torch.compile, too")
    suite.add_argument(
        "--compile-backend", default="", metavar="NAME", help="the same, with it (inductor)"
    )
    suite.add_argument(
        "--ranks", type=_ranks, default=0, metavar="N", help="check the training of N ranks, too"
    )
    suite.add_argument("--seed", type=_seed, default=0, metavar="N", help="of random numbers (0)")
    suite.add_argument(
        "--device", default="", metavar="NAME", help="cpu, cuda or cuda:N (a card where one is)"
    )
    suite.add_argument(
        "--out", default=FOLDER, metavar="FOLDER", help=f"for report and curves ({FOLDER})"
    )
    suite.add_argument("--json", action="store_true", help="the result as data, on stdout alone")
    suite.add_argument("--away", action="store_true", help=argparse.SUPPRESS)


def read(options: argparse.Namespace) -> Asked:
    """Read what a parser with these options has found.

    :raises NotMeantError: where it can't be meant.
    """
    if not options.target:
        raise NotMeantError(
            "which model? Write MODULE:FACTORY, such as package.model:make_model for the function "
            "make_model() in package/model.py"
        )
    only, skip = (_checks(name, getattr(options, name)) for name in ("only", "skip"))
    backend = options.compile_backend or ("inductor" if options.compile else "")
    if "compile_parity" in only:
        backend = backend or "inductor"
    asked = Asked(
        target=options.target,
        parts={name: getattr(options, name) for name in PARTS if getattr(options, name)},
        fixed=tuple(options.fixed),
        only=only,
        skip=skip,
        seed=options.seed,
        device=_device(options.device),
        ranks=options.ranks,
        backend=backend,
        out=options.out,
        json=options.json,
        away=options.away,
    )
    for step in order.STEPS:
        if step.name in only and step.option == "--ranks" and not asked.ranks:
            raise NotMeantError(f"{step.name} needs ranks: add --ranks=2")
    if all(asked.wants(step) for step in order.STEPS):
        raise NotMeantError("no check is left: --skip and --only leave none")
    return asked


def words(asked: Asked, out: str) -> list[str]:
    """Write it as a command line for somewhere else.

    :param out: the folder in place of the one that was asked for.
    """
    texts = {f"--{name.replace('_', '-')}": value for name, value in asked.parts.items()}
    texts |= {
        "--only": ",".join(asked.only),
        "--skip": ",".join(asked.skip),
        "--seed": str(asked.seed),
        "--device": asked.device,
        "--ranks": str(asked.ranks or ""),
        "--compile-backend": asked.backend,
    }
    found = [asked.target, *(f"{name}={value}" for name, value in texts.items() if value)]
    found += [f"--fixed={pattern}" for pattern in asked.fixed]
    return [*found, *(["--json"] if asked.json else []), "--away", "--out", out]


def _checks(option: str, given: list[str]) -> tuple[str, ...]:
    found = [name.strip() for text in given for name in text.split(",") if name.strip()]
    for name in found:
        if name not in order.names():
            raise NotMeantError(
                f"--{option}={name} names no check; these are: {', '.join(order.names())}"
            )
    return tuple(dict.fromkeys(found))


def _device(text: str) -> str:
    if text and not re.fullmatch(r"[a-z]+(:[0-9]{1,3})?", text):
        raise NotMeantError(f"--device={text!r} is no device; write cpu, cuda or cuda:1")
    return text


def _number(text: str, least: int, most: int, what: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"invalid {what} {text!r}; write {least} to {most}")
    return int(text)


def _ranks(text: str) -> Any:
    return _number(text, 2, MOST_RANKS, "number of ranks")


def _seed(text: str) -> Any:
    return _number(text, 0, LARGEST_SEED, "seed")
