"""Sessions to which something bad happens: what they must come to, and what must not be left.

Its modules use helpers from the folder above, however they are started.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
