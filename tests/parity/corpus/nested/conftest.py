"""Notes each session and asks for a remote run wherever it can."""

import os
import pathlib


def pytest_load_initial_conftests(args):
    args.append("--remote=local:cpu")


def pytest_sessionstart(session):
    who = "worker" if hasattr(session.config, "workerinput") else "controller"
    here = pathlib.Path(__file__).parent
    (here / f"{who}-{os.getpid()}.session").touch()
    print("SESSION", who)
