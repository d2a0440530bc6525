"""The far side: started by name, and imported by nobody on the user's side.

Must not import more of this package than its ground floor.
"""

from __future__ import annotations

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    # `python -m` puts the working directory first on the import path: the user's project, whose
    # tempfile.py would be taken for Python's. Python's -P is too new for some that may say hello.
    del sys.path[0]
