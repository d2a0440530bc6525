import subprocess
import sys


def sign(number):
    if number > 0:
        return 1
    if number < 0:
        return -1
    return 0


def only_far():
    return "far"


def child():
    return subprocess.run([sys.executable, "-c", "import lib; lib.in_child()"], check=True)


def in_child():
    return "child"


def never():
    return "never"
