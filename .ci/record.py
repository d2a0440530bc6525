"""Record a session in a terminal as an animated SVG, which the README shows.

The session is real: `pytest --remote=local:cpu` on the quickstart, in a pseudo terminal, with its
own times, but that a long wait is cut short. What it prints goes through an emulator of terminals
(pyte), and each state of the screen becomes a frame. Who wants no motion sees the last one.

Usage: python .ci/record.py [FILE]

Writes docs/session.svg, or FILE. Exit status: 0 for a recording, 1 where the session failed or
would show where it was made, 2 for a wrong call.
"""

import dataclasses
import html
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from fcntl import ioctl
from itertools import groupby
from pathlib import Path
from typing import Final, TypeAlias

import pyte

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / "docs" / "session.svg"
COMMAND: Final = "pytest --remote=local:cpu -v"
PROMPT: Final = "\x1b[32m$\x1b[0m "
COLUMNS: Final = 100
ROWS: Final = 29
SECONDS: Final = 120.0
"""For the session; more is a hang."""
TOGETHER: Final = 0.04
"""Seconds within which output is one frame."""
LONGEST: Final = 1.2
"""Seconds that a frame stands at most; a wait that is longer is cut."""
KEY: Final = 0.05
"""Seconds for each letter of the command, of which a few make a frame."""
LETTERS: Final = 3
END: Final = 5.0
"""Seconds that the last frame stands."""
FONT: Final = 14
WIDTH: Final = 8.4
HEIGHT: Final = 19
MARGIN: Final = 14
GROUND: Final = "#1b1f27"
PLAIN: Final = "#d5dae3"
COLOURS: Final = {
    "default": PLAIN,
    "black": "#5c6370",
    "red": "#f07178",
    "green": "#a5d76e",
    "brown": "#f2c55c",
    "blue": "#7aa7ff",
    "magenta": "#d792ea",
    "cyan": "#7fdbca",
    "white": "#ffffff",
}
"""By the names that pyte has; what the terminal calls yellow is brown there."""

Style: TypeAlias = tuple[str, bool]
Row: TypeAlias = tuple[tuple[int, str, Style], ...]
"""Stretches of one style: column, text, style."""


@dataclasses.dataclass(frozen=True)
class Frame:
    """A state of the screen. :ivar rows: from the top. :ivar seconds: that it stands."""

    rows: tuple[Row, ...]
    seconds: float


class NotRecordedError(Exception):
    """There is no recording; the text says why."""


def run(folder: Path) -> list[tuple[float, bytes]]:
    """Run the command in a terminal and give what it prints, with times in seconds.

    :raises NotRecordedError: where it fails or hangs.
    """
    outer, inner = pty.openpty()
    ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", *COMMAND.split()],
        cwd=folder,
        env=surroundings(folder),
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
    ) as process:
        os.close(inner)
        try:
            printed = list(follow(outer, started))
        except NotRecordedError:
            process.kill()
            raise
        finally:
            os.close(outer)
    if process.returncode:
        text = b"".join(chunk for _, chunk in printed).decode(errors="replace")
        raise NotRecordedError(f"the session ended with {process.returncode}:\n{text}")
    return printed


def surroundings(folder: Path) -> dict[str, str]:
    """Give the environment: plain, of one plugin, and with nothing that stays afterwards."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    return {
        **kept,
        "HOME": str(folder.parent),
        "TERM": "xterm-256color",
        "CI": "1",  # nothing stays warm
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_remotegpu.plugin",
        "COLUMNS": str(COLUMNS),
    }


def follow(terminal: int, started: float) -> Iterator[tuple[float, bytes]]:
    """Read a terminal until nobody writes to it any more.

    :raises NotRecordedError: where that takes too long.
    """
    while True:
        left = started + SECONDS - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            raise NotRecordedError(f"the session has not ended within {SECONDS:g} s")
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:  # Linux says so where the other end is closed
            return
        if not chunk:
            return
        yield time.monotonic() - started, chunk


def tidy(printed: Sequence[tuple[float, bytes]], folder: Path) -> list[tuple[float, str]]:
    """Join what belongs to one frame, and name no place of this machine."""
    groups: list[tuple[float, bytes]] = []
    for when, chunk in printed:
        if groups and when - groups[-1][0] < TOGETHER:
            groups[-1] = (groups[-1][0], groups[-1][1] + chunk)
        else:
            groups.append((when, chunk))
    names = {
        str(folder.resolve()): "/home/you/project",
        str(folder): "/home/you/project",
        sys.executable: "/home/you/.venv/bin/python",
    }
    told = []
    for when, chunk in groups:
        text = chunk.decode("utf-8", "replace")
        for name, other in names.items():
            text = text.replace(name, other)
        told.append((when, text))
    return told


def check(told: Sequence[tuple[float, str]]) -> None:
    """See that the recording shows nothing of where it was made.

    :raises NotRecordedError: where it does.
    """
    text = "".join(part for _, part in told)
    for name in {sys.prefix, str(ROOT), tempfile.gettempdir(), str(Path.home())} - {"/"}:
        if f"{name}/" in text:
            raise NotRecordedError(f"the recording would show {name}:\n{text}")


def film(told: Sequence[tuple[float, str]]) -> list[Frame]:
    """Give the frames: the command as it is typed, and then what it prints."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    stream.feed(PROMPT)
    frames = [Frame(look(screen), 0.5)]
    for at in range(0, len(COMMAND), LETTERS):
        letters = COMMAND[at : at + LETTERS]
        stream.feed(letters)
        frames.append(Frame(look(screen), KEY * len(letters)))
    stream.feed("\r\n")
    before, last = 0.0, look(screen)
    for when, text in told:
        frames.append(Frame(last, min(when - before, LONGEST)))
        stream.feed(text)
        before, last = when, look(screen)
    stream.feed(PROMPT)
    return [*frames, Frame(look(screen), END)]


def look(screen: pyte.Screen) -> tuple[Row, ...]:
    """Give the rows of the screen as they are now."""
    return tuple(row(screen, number) for number in range(ROWS))


def row(screen: pyte.Screen, number: int) -> Row:
    """Give a row in stretches of one style, without the spaces at its end."""
    cells = [screen.buffer[number][column] for column in range(COLUMNS)]
    while cells and cells[-1].data in ("", " "):
        cells.pop()
    parts, column = [], 0
    for style, group in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
        text = "".join(cell.data for cell in group)
        if text.strip():
            parts.append((column, text, style))
        column += len(text)
    return tuple(parts)


def draw(frames: Sequence[Frame], command: str) -> str:
    """Write the picture: each row that is there once, the frames below each other, one seen."""
    known: dict[Row, str] = {}
    shapes, shown = [], []
    tall = ROWS * HEIGHT + 2 * MARGIN
    for number, frame in enumerate(frames):
        for line, content in enumerate(frame.rows):
            if not content:
                continue
            if content not in known:
                known[content] = f"r{len(known)}"
                shapes.append(f'<g id="{known[content]}">{words(content)}</g>')
            y = number * tall + MARGIN + (line + 1) * HEIGHT - 5
            shown.append(f'<use href="#{known[content]}" y="{y}"/>')
    wide = round(COLUMNS * WIDTH + 2 * MARGIN)
    return PICTURE.format(
        wide=wide,
        tall=tall,
        ground=GROUND,
        font=FONT,
        total=f"{sum(frame.seconds for frame in frames):.2f}",
        keys="".join(moments(frames, tall)),
        last=-(len(frames) - 1) * tall,
        title=html.escape(command),
        text=html.escape(text_of(frames[-1])),
        shapes="\n".join(shapes),
        shown="\n".join(shown),
    )


PICTURE: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}" \
role="img" xml:space="preserve">
<title>{title}</title>
<desc>{text}</desc>
<style>
text {{ font: {font}px ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", \
monospace; white-space: pre }}
.film {{ animation: film {total}s step-end infinite }}
@keyframes film {{ {keys} }}
@media (prefers-reduced-motion: reduce) {{ .film {{ animation: none; \
transform: translateY({last}px) }} }}
</style>
<defs>
{shapes}
</defs>
<rect width="{wide}" height="{tall}" rx="8" fill="{ground}"/>
<g class="film">
{shown}
</g>
</svg>
"""


def words(content: Row) -> str:
    """Write a row; each stretch is as wide as its letters are in a terminal."""
    parts = []
    for column, text, (colour, bold) in content:
        fill = COLOURS.get(colour.removeprefix("bright"), f"#{colour}")
        weight = ' font-weight="bold"' if bold else ""
        place = f'x="{MARGIN + column * WIDTH:.1f}" textLength="{len(text) * WIDTH:.1f}"'
        parts.append(f'<text {place} fill="{fill}"{weight}>{html.escape(text)}</text>')
    return "".join(parts)


def moments(frames: Sequence[Frame], tall: int) -> Iterator[str]:
    """Give the moments at which each frame comes to be seen."""
    total, now = sum(frame.seconds for frame in frames), 0.0
    for number, frame in enumerate(frames):
        yield f"{100 * now / total:.3f}% {{ transform: translateY({-number * tall}px) }} "
        now += frame.seconds


def text_of(frame: Frame) -> str:
    """Give what a frame says, line by line."""
    lines = []
    for content in frame.rows:
        line = ""
        for column, text, _ in content:
            line = line.ljust(column) + text
        lines.append(line.rstrip())
    return "\n".join(lines).strip()


def main(arguments: list[str]) -> int:
    """Record, and return the exit status."""
    if len(arguments) > 1 or any(re.match("-", each) for each in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    target = Path(arguments[0]) if arguments else TARGET
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        shutil.copytree(ROOT / "examples" / "quickstart", folder)
        try:
            told = tidy(run(folder), folder)
            check(told)
        except NotRecordedError as error:
            print(error, file=sys.stderr)
            return 1
    frames = film(told)
    target.write_text(draw(frames, COMMAND), encoding="utf-8", newline="\n")
    print(f"{target}: {len(frames)} frames, {sum(frame.seconds for frame in frames):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
