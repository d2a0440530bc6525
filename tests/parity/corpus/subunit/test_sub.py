"""unittest's sub-tests: pytest writes their progress into the captured output of the test."""

import unittest

import pytest


class Parts:
    def test_parts(self):
        for i in range(3):
            with self.subTest("part", i=i):
                self.assertNotEqual(i, 1)

    def test_all_good(self):
        with self.subTest(i=1):
            pass


@pytest.mark.gpu
class FarTest(Parts, unittest.TestCase):
    pass


class HereTest(Parts, unittest.TestCase):
    pass
