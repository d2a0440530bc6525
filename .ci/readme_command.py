"""Print the command that README.md shows under a marker, so that CI runs what readers copy.

A marker is an HTML comment, `<!-- command: NAME -->`, and the next thing after it is a fenced block
with the command. This script reads one file and knows nothing of the project.

Usage: python .ci/readme_command.py NAME [FILE]
"""

import re
import sys
from pathlib import Path

BLOCK = re.compile(
    r"^<!-- command: (?P<name>[\w-]+) -->[ \t]*\n\s*^```\w*[ \t]*\n(?P<body>.*?)^```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)


def find_command(name: str, text: str) -> str:
    """Return the text of the only block marked with *name*.

    :raises LookupError: where no block, or more than one, carries that marker.
    """
    blocks = [(match["name"], match["body"].strip()) for match in BLOCK.finditer(text)]
    found = [body for label, body in blocks if label == name]
    if len(found) != 1 or not found[0]:
        known = sorted({label for label, _ in blocks})
        message = f"expected one command marked {name!r}, found {len(found)}; marked are {known!r}"
        raise LookupError(message)
    return found[0]


def main(argv: list[str]) -> int:
    """Print the command and return the exit status: 2 for a wrong call, 1 where it is missing."""
    match argv:
        case [name]:
            path = Path(__file__).parent.parent / "README.md"
        case [name, given]:
            path = Path(given)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    try:
        print(find_command(name, path.read_text(encoding="utf-8")))
    except LookupError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
