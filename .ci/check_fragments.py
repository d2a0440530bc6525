"""Refuse changelog fragments that towncrier would overlook or that say nothing.

It looks at names and sizes in `changelog.d/` and knows nothing of the project.

Usage: python .ci/check_fragments.py [FOLDER]
"""

import re
import sys
from pathlib import Path

TYPES = ("feature", "bugfix", "removal", "doc", "misc")
NAME = re.compile(rf"(?:\d+|\+[\w-]+)\.(?:{'|'.join(TYPES)})(?:\.\d+)?\.md")
KEPT = ("README.md", ".gitkeep")


def find_faults(folder: Path) -> list[str]:
    """Return one sentence for each entry of *folder* that can't become a line of the changelog."""
    faults = []
    for path in sorted(folder.iterdir()):
        if path.name in KEPT:
            continue
        if not NAME.fullmatch(path.name):
            faults.append(
                f"{path}: a fragment is named ISSUE.TYPE.md or +WORD.TYPE.md, "
                f"with one of {', '.join(TYPES)} as TYPE"
            )
        elif not path.read_text(encoding="utf-8").strip():
            faults.append(f"{path}: a fragment says in a sentence what changed; this one is empty")
    return faults


def main(argv: list[str]) -> int:
    """Print the faults and return the exit status, 1 where there are any."""
    folder = Path(argv[0]) if argv else Path(__file__).parent.parent / "changelog.d"
    faults = find_faults(folder)
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
