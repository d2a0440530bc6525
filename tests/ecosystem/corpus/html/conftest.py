import pytest
import pytest_html


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        report.extras = [
            *getattr(report, "extras", []),
            pytest_html.extras.text("by hook", name="hooked"),
        ]
        report.description = str(item.function.__doc__)


def pytest_html_results_table_header(cells):
    cells.insert(2, "<th>Description</th>")


def pytest_html_results_table_row(report, cells):
    cells.insert(2, f"<td>{getattr(report, 'description', '')}</td>")


def pytest_html_report_title(report):
    report.title = "Mine"
