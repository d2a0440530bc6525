"""Names and contents that stay behind unless they are asked for; knows no file system.

Holds for files that travel with a run and for those that an image is made of.

Reasons are predicates of the path that stands beside them. The lists err on the side of leaving
out: a missing file is noticed and named, a key that travelled is not.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable
from typing import Final

__all__ = [
    "CACHE",
    "ENVIRONMENT",
    "SECRET",
    "SPELT_OUT",
    "VERSION_CONTROL",
    "of_content",
    "of_file",
    "of_folder",
]

Parts = tuple[str, ...]
"""A path's components."""

VERSION_CONTROL: Final = "is version control data, which never travels"
ENVIRONMENT: Final = "is a virtual environment"
CACHE: Final = "is a cache"
SECRET: Final = "may hold a secret"  # noqa: S105 -- the reason, no secret
# What an include glob brings in by spelling the name out. Version control data is not among them:
# its configuration and logs hold the remotes' addresses, often with a token.
SPELT_OUT: Final = frozenset({ENVIRONMENT, CACHE, SECRET})

# All names here are lower case and are compared with the lower-cased name.
_VERSION_CONTROL: Final = frozenset({".git", ".hg", ".svn", ".jj", ".bzr"})
_CACHES: Final = frozenset(
    {
        *("__pycache__", ".pytest_cache", ".remotegpu", ".mypy_cache", ".ruff_cache"),
        *(".import_linter_cache", ".pytype", ".ipynb_checkpoints", ".hypothesis", ".tox"),
        *(".nox", ".eggs", "node_modules", ".ds_store"),
    }
)
_SECRET_FOLDERS: Final = frozenset(
    {".aws", ".azure", ".env", ".gnupg", ".kube", ".oci", ".password-store", ".secrets", ".ssh"}
)
_SECRET_FILES: Final = (
    # environments and logins
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".htpasswd"),
    # keys and key stores
    *("*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"),
    # tools that keep a token in their settings
    *(".git-credentials", ".pypirc", ".npmrc", ".yarnrc.yml", "pip.conf", "pip.ini"),
    *(".modal.toml", ".vault-token", ".dockercfg", ".dockerconfigjson", "kaggle.json"),
    *(".boto", ".s3cfg", ".databrickscfg", ".terraformrc"),
    *("*.tfstate", "*.tfstate.*", "*.tfvars", "kubeconfig", "kubeconfig.*", "*.kubeconfig"),
    # tokens by name, and shells' histories
    *("token.json", ".token", "*.token", "hf_token*", ".hf_token*", ".*_history"),
)
# Words that name modules and documents too, which are no secret for their name alone.
_SECRET_WORDS: Final = (
    *("credentials*", ".credentials*", "*credentials.json", "secrets.*", ".secrets.*"),
    *("client_secret*", "*service?account*", "*serviceaccount*"),
)
_SOURCES: Final = (
    *(".py", ".pyi", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"),
    *(".md", ".rst"),
)
_SECRET_PAIRS: Final = frozenset(
    {(".docker", "config.json"), ("huggingface", "token"), (".huggingface", "token")}
)
_PRIVATE_KEY: Final = re.compile(rb"\s*(-----BEGIN [A-Z ]*PRIVATE KEY|PuTTY-User-Key-File)")
_SERVICE_ACCOUNT: Final = re.compile(rb'\s*\{(?=.*"private_key").*"service_account"', re.DOTALL)
_SERVICE_ACCOUNT_WITHIN: Final = 16384  # bytes; the real ones take about 2,400


def _union(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))


_SECRET_FILE: Final = _union(_SECRET_FILES)
_SECRET_WORD: Final = _union(_SECRET_WORDS)


@functools.lru_cache(maxsize=4096)
def of_folder(name: str) -> str | None:
    """Say why a folder of this name stays behind, or return None."""
    lowered = name.lower()
    if lowered in _VERSION_CONTROL:
        return VERSION_CONTROL
    if lowered in _CACHES:
        return CACHE
    return SECRET if lowered in _SECRET_FOLDERS else None


def of_file(path: Parts) -> str | None:
    """Say why a file or link of this path stays behind for its name, or return None."""
    name = path[-1].lower()
    pair = (*path[-2:-1], name)
    wordy = _SECRET_WORD.match(name) and not name.endswith(_SOURCES)
    return SECRET if wordy or _SECRET_FILE.match(name) or pair in _SECRET_PAIRS else of_folder(name)


def of_content(head: bytes) -> str | None:
    """Say why a file that begins with these bytes stays behind, or return None."""
    account = _SERVICE_ACCOUNT.match(head[:_SERVICE_ACCOUNT_WITHIN])
    return SECRET if account or _PRIVATE_KEY.match(head) else None
