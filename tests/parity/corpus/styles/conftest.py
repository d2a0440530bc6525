"""Marks doctests late and collects items of a kind of its own."""

import pytest


class CaseError(Exception):
    """A case of a `.cases` file did not hold."""


class CaseFile(pytest.File):
    def collect(self):
        for number, line in enumerate(self.path.read_text().splitlines()):
            name, _, text = line.partition(":")
            item = Case.from_parent(self, name=name.removesuffix("@gpu").strip())
            item.number, item.text = number, text.strip()
            if "@gpu" in name:
                item.add_marker("gpu")
            yield item


class Case(pytest.Item):
    def setup(self):
        print(f"case {self.name} is set up")

    def runtest(self):
        print(f"case {self.name}: {self.text}")
        if self.text == "skip":
            pytest.skip("this case is skipped")
        if not eval(self.text):
            raise CaseError(self.name, self.text)

    def repr_failure(self, excinfo):
        if isinstance(excinfo.value, CaseError):
            return f"case {excinfo.value.args[0]} does not hold:\n  {excinfo.value.args[1]}"
        return f"case broke with {excinfo.typename}: {excinfo.value}"

    def reportinfo(self):
        return self.path, self.number, f"case: {self.name}"


def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".cases":
        return CaseFile.from_parent(parent, path=file_path)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if isinstance(item, pytest.DoctestItem) and "here" not in item.name:
            item.add_marker(pytest.mark.gpu)
    return (yield)


@pytest.fixture(autouse=True)
def names_for_doctests(doctest_namespace):
    doctest_namespace["seven"] = 7
