"""The code under test: gradient descent on a line, without torch."""

from __future__ import annotations

Point = tuple[float, float]


def split(points: list[Point], parts: int) -> list[list[Point]]:
    """Deal points to ``parts`` cards, as evenly as they go; every point goes to exactly one."""
    return [points[part::parts] for part in range(parts)]


def gradient(points: list[Point], slope: float) -> float:
    """Give the gradient of the squared error of ``y = slope * x``, summed over the points."""
    return sum(2 * (slope * x - y) * x for x, y in points)


def losses(points: list[Point], rate: float, steps: int) -> list[float]:
    """Descend from slope 0 and give the mean squared error before each step."""
    slope, seen = 0.0, []
    for _ in range(steps):
        seen.append(sum((slope * x - y) ** 2 for x, y in points) / len(points))
        slope -= rate * gradient(points, slope) / len(points)
    return seen
