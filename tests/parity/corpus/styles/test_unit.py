"""unittest.TestCase, here and far away."""

import unittest

import pytest

gpu = pytest.mark.gpu


class Common:
    @classmethod
    def setUpClass(cls):
        print("class up")
        cls.shared = [1]

    @classmethod
    def tearDownClass(cls):
        print("class down")

    def setUp(self):
        print("up")
        self.addCleanup(print, "cleanup")

    def tearDown(self):
        print("down")

    def test_passes(self):
        self.assertEqual(self.shared, [1])

    def test_fails(self):
        self.assertEqual({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 3]}, "with a message")

    def test_errors(self):
        raise KeyError("x")

    @unittest.skip("by unittest")
    def test_skip(self):
        pass

    def test_skip_in_body(self):
        self.skipTest("in the body")

    @unittest.skipIf(True, "by condition")
    def test_skip_if(self):
        pass

    @unittest.expectedFailure
    def test_expected(self):
        self.fail("expected")

    @unittest.expectedFailure
    def test_unexpected(self):
        pass

    def test_raises(self):
        with self.assertRaisesRegex(ValueError, "x"):
            raise ValueError("y")

    def test_logs(self):
        with self.assertLogs("a"):
            pass


@gpu
class FarTest(Common, unittest.TestCase):
    pass


class HereTest(Common, unittest.TestCase):
    pass


@gpu
class BrokenSetUp(unittest.TestCase):
    def setUp(self):
        raise ValueError("setUp")

    def test_one(self):
        pass


@gpu
class BrokenTearDown(unittest.TestCase):
    def tearDown(self):
        raise ValueError("tearDown")

    def test_one(self):
        pass

    def test_two(self):
        self.fail("call too")


@gpu
class BrokenClass(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise ValueError("setUpClass")

    def test_one(self):
        pass

    def test_two(self):
        pass


@gpu
@unittest.skip("whole class")
class SkippedClass(unittest.TestCase):
    def test_one(self):
        pass


@gpu
class AsyncTest(unittest.IsolatedAsyncioTestCase):
    async def test_awaits(self):
        self.assertTrue(True)

    async def test_fails(self):
        self.assertTrue(False)


class WithFixtures(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.tmp = tmp_path

    @gpu
    def test_far(self):
        self.assertTrue(self.tmp.is_dir())

    def test_here(self):
        self.assertTrue(self.tmp.is_dir())
