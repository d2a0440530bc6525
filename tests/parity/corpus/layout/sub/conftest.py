"""Is loaded early because its folder is named on the command line."""


def pytest_addoption(parser):
    parser.addoption("--size", type=int, default=1)
