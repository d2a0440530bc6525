"""Two users of one host: cards are shared honestly, warm processes are nobody else's.

The other user is ``nobody``, which only a privileged test can be.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator

import pytest

from session.running import CPU, Started, run, said, until
from warmth import Warmth, alive

from .conftest import HOLDS, Host
from .test_cards import LOCAL, SEES, is_free, lease_of

NOBODY = 65534

pytestmark = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can be two users"
)


class Other:
    """A process of another user, forked from this one, and what it says."""

    def __init__(self, work: Callable[[], str]) -> None:
        """Let it do some work, say what came of it, and stay until it is told to go."""
        self._said, say = os.pipe()
        stay, self._go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                os.close(self._go)
                os.write(say, work().encode() + b"\n")
                os.read(stay, 1)
            except BaseException as error:  # noqa: BLE001 -- the border of a forked process
                os.write(say, repr(error).encode() + b"\n")
            finally:
                os._exit(0)
        os.close(say)
        os.close(stay)
        self.said = self._read()

    def _read(self) -> str:
        said = b""
        while not said.endswith(b"\n") and (chunk := os.read(self._said, 2**12)):
            said += chunk
        return said.decode().strip()

    def close(self) -> None:
        """Let it go."""
        with contextlib.suppress(OSError):
            os.close(self._go)
            os.close(self._said)
            os.waitpid(self.pid, 0)


@contextlib.contextmanager
def other(work: Callable[[], str]) -> Iterator[Other]:
    made = Other(work)
    try:
        yield made
    finally:
        made.close()


def test_a_card_that_another_user_has_is_waited_for(pytester: pytest.Pytester, host: Host) -> None:
    (uuid,) = host.has("NVIDIA H200")
    pytester.makepyfile(test_far=SEES)
    leases: list[object] = []

    def hold() -> str:
        lease = lease_of(uuid)
        leases.append(lease)  # it would be let go with its last name
        return str(lease.take())

    with other(hold) as nobody:
        assert nobody.said == "True"
        refused = run(pytester, LOCAL, "-k", "one", "--remote-wait=0.3")
        assert refused.ret == 1
        assert f"held by process {nobody.pid} of nobody" in said(refused)
        with Started(pytester, LOCAL, "-k", "one", "--remote-wait=30") as session:
            session.wait_for(f"is held by process {nobody.pid} of nobody")
            nobody.close()
            assert session.end() == 0, session.text


def test_a_card_that_this_user_has_is_no_other_ones(pytester: pytest.Pytester, host: Host) -> None:
    (uuid,) = host.has("NVIDIA H200")
    pytester.makepyfile(test_far=HOLDS)
    with Started(pytester, LOCAL, "--remote-fresh") as session:
        assert until((pytester.path / "BEGUN").exists)
        with other(lambda: str(is_free(uuid))) as nobody:
            assert nobody.said == "False"
        (pytester.path / "GO").touch()
        assert session.end() == 0, session.text
    with other(lambda: str(is_free(uuid))) as nobody:
        assert nobody.said == "True"


def test_another_user_is_turned_away(pytester: pytest.Pytester, home: Warmth) -> None:
    """Also where the permissions of socket and folder would let them in."""
    pytester.makepyfile(test_far="import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n")
    assert run(pytester, CPU).ret == 0
    path = home.sockets[0]
    for place, mode in ((home.runtime, 0o755), (path.parent, 0o755), (path, 0o666)):
        place.chmod(mode)

    def ask() -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(path))
            try:
                connection.sendall(b'{"word": "ps"}\n')
                return f"heard {connection.recv(2**16)!r}"
            except ConnectionError:
                return "heard b''"

    with other(ask) as nobody:
        assert nobody.said == "heard b''"
        assert until(lambda: f"turned away process {nobody.pid} of user {NOBODY}" in home.log())
    path.parent.chmod(0o700)
    assert home.ask("ps")["workers"] == []


@pytest.mark.parametrize("when", ["while it imports", "when it is ready"])
def test_a_zygote_without_its_agent_leaves_nothing(
    when: str, pytester: pytest.Pytester, home: Warmth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session comes afterwards that would tidy up."""
    temporary = pytester.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))
    if when == "while it imports":
        lib = pytester.mkdir("lib")
        (lib / "slow_one.py").write_text(
            "import pathlib, time\n"
            f"pathlib.Path({str(pytester.path / 'IMPORTS')!r}).touch()\n"
            f"while not pathlib.Path({str(pytester.path / 'GO')!r}).exists(): time.sleep(0.02)\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(lib))
        pytester.makeini("[pytest]\nremotegpu_preload = slow_one\n")
    pytester.makepyfile(test_far="import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n")
    assert run(pytester, CPU).ret == 0
    if when == "while it imports":
        assert until((pytester.path / "IMPORTS").exists)
    found = home.ask("ps")
    zygotes = [int(zygote["pid"]) for zygote in found["zygotes"]]
    assert list(temporary.glob("remotegpu-*"))
    os.kill(int(found["agent"]), signal.SIGKILL)
    (pytester.path / "GO").touch()
    assert until(lambda: not any(map(alive, zygotes)), 10.0)
    assert until(lambda: not list(temporary.glob("remotegpu-*")), 5.0)


@pytest.mark.parametrize(("collects", "errors"), [("far", 1), ("here", 2 + 1)])
def test_a_hang_at_import_ends_without_a_limit_of_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, collects: str, errors: int
) -> None:
    """The time for imports is shortened by what any interpreter imports when it starts."""
    lib = pytester.mkdir("lib")
    (lib / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'pytest_remotegpu.worker' in sys.orig_argv:\n"
        "    from pytest_remotegpu.worker import watch\n"
        "    watch.START = 10.0\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(lib))
    pytester.makepyfile(
        test_bad="""
            import os, time
            import pytest

            if "REMOTEGPU_WORKER" in os.environ:
                time.sleep(600)

            @pytest.mark.gpu
            @pytest.mark.parametrize("n", range(2))
            def test_never(n): pass
        """,
        test_good="import pytest\n@pytest.mark.gpu\ndef test_good(): pass\n",
    )
    goes_on = ("-o", f"remotegpu_collect={collects}", "--continue-on-collection-errors")
    result = run(pytester, CPU, "--remote-fresh", "--remote-timeout=9", "-rA", *goes_on)
    text = said(result)
    assert result.ret == (pytest.ExitCode.INTERRUPTED if collects == "here" else 1)
    result.assert_outcomes(passed=1, errors=errors)  # the file, and each test that is known
    assert "timed out" in text
    assert re.search(r'File ".*test_bad\.py", line \d+ in <module>', text)
