"""Checks of the suite that need several ranks: starts them, and takes the verdict of the first.

A rank is a process of this module, started by name. It is told what to do on its stdin, whose end
tells it that whoever started it is gone; its verdict comes on its stdout, where nothing else can
go. Ranks find each other at a store that the starter holds, so that no port is chosen and no file
is left.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from pytest_remotegpu.diagnostics import batches
from pytest_remotegpu.diagnostics.asfound import seed_all
from pytest_remotegpu.diagnostics.asking import Asked
from pytest_remotegpu.diagnostics.faults import (
    NotApplicableError,
    NotMeantError,
    Raised,
    UserCodeError,
    raised,
)
from pytest_remotegpu.diagnostics.given import Given, load
from pytest_remotegpu.diagnostics.scaling import loss_scale
from pytest_remotegpu.diagnostics.sharding import fsdp_matches
from pytest_remotegpu.diagnostics.synchronising import gradients_synchronised
from pytest_remotegpu.diagnostics.verdict import Measure, Verdict

__all__ = ["run"]

ADDRESS: Final = "127.0.0.1"
LIMIT: Final = 600.0
"""Seconds in which ranks come to a verdict, or wait for each other in vain."""
GRACE: Final = 2.0
"""Seconds that the others have when one rank has failed: what they say may be the cause."""
LAST_WORDS: Final = 1.0


def run(name: str, asked: Asked) -> Verdict:
    """Make a check in ranks.

    :param name: one of :data:`CHECKS`.
    :raises NotMeantError: where the cards that were asked for are not there.
    :raises UserCodeError: where a rank raises, ends or hangs.
    """
    import torch  # noqa: PLC0415 -- late

    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked.device.startswith("cuda") and cards < asked.ranks:
        raise NotMeantError(
            f"--ranks={asked.ranks} on {asked.device} needs as many cards, and there are {cards}; "
            "leave --device out for ranks on the CPU"
        )
    place = "cuda" if cards >= asked.ranks and asked.device != "cpu" else "cpu"
    store = torch.distributed.TCPStore(
        ADDRESS, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=LIMIT)
    )
    told = {"check": name, "asked": asdict(asked), "port": store.port, "place": place}
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(asked.ranks):
            ranks.append(_start({**told, "rank": rank}))  # noqa: PERF401 -- all that began are ended
        return _verdict(_answers(ranks))
    finally:
        for process in ranks:
            _end(process)


def _start(told: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", __name__]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    if process.stdin is not None:
        process.stdin.write(json.dumps(told).encode() + b"\n")
        process.stdin.flush()
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let a rank go; one that does not, is killed."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _answers(ranks: list[subprocess.Popen[bytes]]) -> list[dict[str, Any]]:
    """Give what the ranks say, in the order in which they do."""
    found: list[dict[str, Any]] = []
    said = dict.fromkeys(range(len(ranks)), b"")
    until = time.monotonic() + LIMIT
    with selectors.DefaultSelector() as selector:
        for rank, process in enumerate(ranks):
            selector.register(process.stdout or 0, selectors.EVENT_READ, rank)
        while selector.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                data = os.read(key.fd, 2**16)
                said[key.data] += data
                if not data:
                    selector.unregister(key.fileobj)
                    found.append(_answer(key.data, said[key.data], ranks[key.data]))
                    if "verdict" not in found[-1]:
                        until = min(until, time.monotonic() + GRACE)
    if len(found) < len(ranks) and all("verdict" in each for each in found):
        found.append({"rank": -1, "ended": f"no verdict after {LIMIT:g} s: ranks wait in vain"})
    return found


def _answer(rank: int, said: bytes, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    try:
        return {"rank": rank, **json.loads(said)}
    except ValueError:
        status = process.wait()
        how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
        return {"rank": rank, "ended": f"rank {rank} has ended {how}, without a verdict"}


def _verdict(answers: list[dict[str, Any]]) -> Verdict:
    """Take the first rank's verdict, or raise what the first raised that has none.

    A rank that has ended comes before those that were waiting for it.
    """
    for answer in sorted(answers, key=lambda answer: "ended" not in answer):
        if "not_meant" in answer:
            raise NotMeantError(answer["not_meant"])
        if "not_applicable" in answer:
            raise NotApplicableError(answer["not_applicable"])
        if "raised" in answer:
            told = answer["raised"]
            message = f"in rank {answer['rank']}: {told['message']}"
            where = told["file"], told["line"], told["traceback"]
            raise UserCodeError(Raised(told["type"], message, *where))
        if "ended" in answer:
            raise UserCodeError(Raised("RankError", answer["ended"], "", 0, answer["ended"]))
    first = next(answer for answer in answers if answer["rank"] == 0)
    return Verdict.from_plain(first["verdict"])


# in a rank


def main() -> None:
    """Do what stdin says, as one rank."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the user's code prints is no verdict
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        if not (data := os.read(0, 2**16)):
            return
        line += data
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    told = json.loads(line)
    asked: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in told.pop("asked").items()
    }
    answer = json.dumps(_tried(Asked(**asked), **told)).encode()
    while answer:
        answer = answer[os.write(out, answer) :]
    os.close(out)
    os.read(0, 1)  # a rank that leaves first would be missed by one that still asks for it


def _end_with_the_starter() -> None:
    while os.read(0, 2**16):
        pass
    os._exit(1)


def _tried(asked: Asked, check: str, port: int, place: str, rank: int) -> dict[str, Any]:
    try:
        return {"verdict": _checked(asked, check, port, place, rank).to_plain()}
    except NotMeantError as error:
        return {"not_meant": str(error)}
    except NotApplicableError as error:
        return {"not_applicable": str(error)}
    except UserCodeError as error:
        return {"raised": error.raised.to_plain()}
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- a process's border: it is told on
        return {"raised": raised(error).to_plain()}


def _checked(asked: Asked, check: str, port: int, place: str, rank: int) -> Verdict:
    import torch  # noqa: PLC0415 -- late
    from torch import distributed  # noqa: PLC0415 -- late

    world = asked.ranks
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world))
    if place == "cuda":
        torch.cuda.set_device(rank)
    given = load(asked, f"cuda:{rank}" if place == "cuda" else "cpu")
    whole = given.first(asked.seed)
    share = batches.rows(whole) // world
    backend = "nccl" if place == "cuda" else "gloo"
    store = distributed.TCPStore(ADDRESS, port, is_master=False)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=world)
    seed_all(asked.seed)
    model = (given.wrap or _wrapped)(given.make_model())
    part = batches.part(whole, rank * share, (rank + 1) * share)
    verdict = CHECKS[check](given, model, part, asked.seed)
    measured = (*verdict.measured, Measure("exchange", backend))
    return Verdict(verdict.name, measured, verdict.findings, verdict.curves)


def _wrapped(model: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415 -- late

    return DistributedDataParallel(model)


def _loss_scale(given: Given, model: Any, part: Any, seed: int) -> Verdict:
    return loss_scale(
        model,
        part,
        loss=given.rank_loss or given.loss,
        whole=given.loss,
        count=lambda batch: given.counted(batch, seed),
    )


def _is_sharded(model: Any) -> bool:
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


def _gradients(given: Given, model: Any, part: Any, seed: int) -> Verdict:
    sharded = _is_sharded(model)
    seed_all(seed)
    return gradients_synchronised(
        model,
        part,
        loss=given.rank_loss or given.loss,
        whole=given.loss,
        reference=given.make_model() if sharded else None,
    )


def _fsdp(given: Given, model: Any, part: Any, seed: int) -> Verdict:
    if not _is_sharded(model):
        raise NotApplicableError(
            "what ranks train is not sharded; wrap_model(model) is where fully_shard belongs"
        )
    return fsdp_matches(
        given.make_model,
        part,
        loss=given.rank_loss or given.loss,
        whole=given.loss,
        shard=given.wrap,
        make_optimizer=given.make_optimizer,
        seed=seed,
    )


CHECKS: Final[Mapping[str, Callable[[Given, Any, Any, int], Verdict]]] = {
    "loss_scale": _loss_scale,
    "gradients_synchronised": _gradients,
    "fsdp_matches": _fsdp,
}
"""Each is called in every rank with what is given, its model as trained, its part of the batch."""


if __name__ == "__main__":
    main()
