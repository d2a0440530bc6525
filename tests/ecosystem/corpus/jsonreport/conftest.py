def pytest_json_runtest_metadata(item, call):
    return {"when": call.when} if call.when == "call" else {}


def pytest_json_modifyreport(json_report):
    json_report["mine"] = len(json_report["tests"])
