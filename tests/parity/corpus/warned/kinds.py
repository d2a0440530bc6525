"""Warning classes of the project."""

import warnings


class CodeWarning(UserWarning):
    def __init__(self, code=None):
        self.code = code
        super().__init__()

    def __str__(self):
        return f"code {self.code or 'unknown'}"


class TwoArguments(DeprecationWarning):
    def __init__(self, old, new):
        super().__init__(f"{old} became {new}")


class TakesKeywords(Warning):
    def __init__(self, *, reason):
        self.reason = reason
        super().__init__("reason", reason)


def call_old():
    warnings.warn("call_old is old", DeprecationWarning, stacklevel=2)
