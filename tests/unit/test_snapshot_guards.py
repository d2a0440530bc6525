"""What must not travel: secrets, environments, caches, version control data."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_remotegpu.snapshot import Rules, Snapshot, take

CANARY = "canary-5f1e7c"
SECRETS = [
    ".env",
    ".env.local",
    ".env.example",
    "prod.env",
    ".envrc",
    "cert.pem",
    "SERVER.PEM",
    "tls.key",
    "deep/down/tls.key",
    "push.p8",
    "store.p12",
    "store.pfx",
    "keys.jks",
    "id_rsa",
    "id_rsa.pub",
    "id_ed25519",
    "id_ed25519_work",
    ".netrc",
    "_netrc",
    ".pypirc",
    ".npmrc",
    "pip.conf",
    ".git-credentials",
    "credentials",
    "credentials.json",
    "Credentials.toml",
    "application_default_credentials.json",
    "secrets.toml",
    "secrets.yaml",
    "client_secret_123.json",
    "my-service-account.json",
    "service_account.json",
    "kubeconfig",
    "dev.kubeconfig",
    "terraform.tfstate",
    "terraform.tfstate.backup",
    "kaggle.json",
    "token.json",
    "hf_token.txt",
    "api.token",
    ".modal.toml",
    ".bash_history",
    ".aws/config",
    ".ssh/known",
    "home/.ssh/config",
    ".kube/cache/x",
    ".azure/x",
    ".gnupg/x",
    "svc/.env/production",
    ".docker/config.json",
    ".cache/huggingface/token",
]
NO_SECRETS = [
    "credentials.py",
    "test_credentials.py",
    "credentials_test.pyi",
    "secrets.py",
    "pkg/secrets/__init__.py",
    "pkg/credentials/loader.py",
    "service_account.py",
    "credentials.md",
    "environment.yml",
    "tokenizer.json",
    "special_tokens_map.json",
    "token.py",
    "keys.py",
    "monkey.txt",
    "model.safetensors",
    ".dockerignore",
    ".docker/Dockerfile",
    "config.json",
    "project.egg-info/PKG-INFO",
    ".github/workflows/ci.yml",
]


def write(root: Path, *paths: str, content: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8")


def taken(root: Path, *include: str) -> Snapshot:
    return take(root, Rules(include=include, exclude=(), max_bytes=1 << 30))


def paths(snapshot: Snapshot) -> list[str]:
    return [entry.path for entry in snapshot.entries]


@pytest.mark.parametrize(
    "include",
    [
        (),
        ("**",),
        ("*", "*/*", "**/*"),
        (".*", "**/.*", "**/*.*", "[.]env", "?env", "*.pem", "id_*", "*_rsa", "**/[.]ssh/**"),
        ("home", "deep/**", "**/*.key", "keep.py"),
    ],
)
def test_no_wildcard_lets_the_canary_out(tmp_path: Path, include: tuple[str, ...]) -> None:
    write(tmp_path, *SECRETS, content=CANARY)
    write(tmp_path, "keep.py")
    snapshot = taken(tmp_path, *include)
    assert paths(snapshot) == ["keep.py"]
    sent = b"".join(content for _, content in snapshot.blobs([snapshot.entries[0].digest]))
    assert CANARY.encode() not in sent
    assert CANARY not in repr(snapshot)
    for secret in SECRETS:
        reason = snapshot.why_left_out(secret)
        assert reason is not None
        assert "may hold a secret; to send it, add" in reason


def test_spelling_one_out_sends_this_one(tmp_path: Path) -> None:
    write(tmp_path, "keep.py", *SECRETS)
    for secret in SECRETS:
        assert paths(taken(tmp_path, secret)) == sorted(["keep.py", secret])


def test_a_spelt_name_at_any_depth_and_a_spelt_folder(tmp_path: Path) -> None:
    write(tmp_path, "a/tls.key", "b/c/tls.key", "b/d.key", ".ssh/config", ".ssh/id_rsa")
    assert paths(taken(tmp_path, "**/tls.key")) == ["a/tls.key", "b/c/tls.key"]
    assert paths(taken(tmp_path, ".ssh/**")) == [".ssh/config"]
    assert paths(taken(tmp_path, ".ssh/**/id_rsa")) == [".ssh/id_rsa"]
    assert paths(taken(tmp_path, "b/d.key/nonsense")) == []


def test_source_and_data_with_telling_names_travel(tmp_path: Path) -> None:
    write(tmp_path, *NO_SECRETS)
    snapshot = taken(tmp_path)
    assert paths(snapshot) == sorted(NO_SECRETS)
    assert snapshot.left_out == ()


@pytest.mark.parametrize(
    "content",
    [
        "-----BEGIN PRIVATE KEY-----\nMII",
        "\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3B",
        "-----BEGIN RSA PRIVATE KEY-----\n",
        "PuTTY-User-Key-File-3: ssh-ed25519\n",
        '{\n "type": "service_account",\n "private_key_id": "1",\n "private_key": "k"}',
        '{"private_key": "k", "type": "service_account"}',
    ],
)
def test_keys_under_harmless_names_are_known_by_content(tmp_path: Path, content: str) -> None:
    write(tmp_path, "deploy", "data/sa.json", content=content)
    snapshot = taken(tmp_path, "**", "data/*.json")
    assert snapshot.entries == ()
    assert [path for path, _ in snapshot.left_out] == ["data/sa.json", "deploy"]
    assert paths(taken(tmp_path, "data/sa.json")) == ["data/sa.json"]


@pytest.mark.parametrize(
    "content",
    [
        'KEY = "-----BEGIN PRIVATE KEY-----"',
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----",
        '{"type": "service_account"}',
        '["service_account", "private_key"]',
    ],
)
def test_contents_that_only_speak_of_keys_travel(tmp_path: Path, content: str) -> None:
    write(tmp_path, "fixture", content=content)
    assert paths(taken(tmp_path)) == ["fixture"]


def test_environments_and_caches_stay_behind_as_one_line_each(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "my env/pyvenv.cfg", "my env/lib/x.py", "conda/conda-meta/history")
    caches = [
        "__pycache__",
        ".pytest_cache",
        ".remotegpu",
        ".mypy_cache",
        ".ruff_cache",
        ".tox",
        ".nox",
    ]
    caches += ["node_modules", ".hypothesis"]
    write(tmp_path, *(f"pkg/{cache}/d/x" for cache in caches))
    snapshot = taken(tmp_path, "**")
    assert paths(snapshot) == ["a.py"]
    assert dict(snapshot.left_out) == {
        "my env": "is a virtual environment",
        "conda": "is a virtual environment",
        **{f"pkg/{cache}": "is a cache" for cache in caches},
    }


def test_environments_and_caches_travel_when_spelt_out(tmp_path: Path) -> None:
    write(tmp_path, ".venv/pyvenv.cfg", ".venv/lib/x.py", ".venv/ca.pem", "node_modules/m.js")
    assert paths(taken(tmp_path, ".venv/lib")) == [".venv/lib/x.py"]
    assert paths(taken(tmp_path, ".venv/**")) == [".venv/lib/x.py", ".venv/pyvenv.cfg"]
    assert paths(taken(tmp_path, "node_modules")) == ["node_modules/m.js"]
    assert paths(taken(tmp_path, ".v*/**")) == []


def test_a_root_inside_an_environment_is_no_environment(tmp_path: Path) -> None:
    write(tmp_path, "pyvenv.cfg", "src/project/a.py")
    assert paths(taken(tmp_path / "src" / "project")) == ["a.py"]


@pytest.mark.parametrize("name", [".git", ".hg", ".svn", ".jj", ".GIT"])
def test_version_control_data_never_travels(tmp_path: Path, name: str) -> None:
    write(tmp_path, "a.py", f"sub/{name}/config", content=CANARY)
    write(tmp_path, f"file/{name}", content=CANARY)
    include = (f"sub/{name}/config", f"sub/{name}/**", f"file/{name}", "**")
    snapshot = taken(tmp_path, *include)
    assert paths(snapshot) == ["a.py"]
    reason = "is version control data, which never travels"
    assert snapshot.left_out == ((f"file/{name}", reason), (f"sub/{name}", reason))
    answer = snapshot.why_left_out(f"sub/{name}/config")
    assert answer == f"'sub/{name}/config' was not sent: 'sub/{name}' {reason}"
