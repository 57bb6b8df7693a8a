"""Tests the files for Prometheus and Grafana: check.py BINARY."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import expressions
import rules
from traffic import Gateway

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
ALERTS = PROJECT / "deploy/prometheus/alerts.yml"
CONFIG = PROJECT / "deploy/prometheus/prometheus.yml"
DASHBOARD = PROJECT / "deploy/grafana/tollgate.json"


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}"


def files_are_valid(work):
    run("promtool", "check", "rules", ALERTS)
    # The token's file is on the machine of Prometheus.
    run("promtool", "check", "config", "--syntax-only", CONFIG)
    run("node", "dashboard.mjs", DASHBOARD, work, cwd=HERE)


def alerts_fire(work):
    missing = set(expressions.of_rules(ALERTS.read_text())) ^ rules.names()
    assert not missing, f"alerts without a test, or tests without an alert: {missing}"
    tests = work / "rules.yml"
    tests.write_text(rules.tests(ALERTS))
    run("promtool", "test", "rules", tests)


def alerts_are_explained():
    """Each alert is in the documents, and its annotation leads to a heading."""
    text, page = ALERTS.read_text(), (PROJECT / "docs/ALERTS.md").read_text()
    for alert, link in expressions.annotation(text, "runbook").items():
        name, _, fragment = link.partition("#")
        headings = re.findall(r"^#+ (.+)$", (PROJECT / name).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not fragment or fragment in anchors, f"{alert}: {name} has no heading #{fragment}"
        assert f"`{alert}`" in page, f"docs/ALERTS.md does not have {alert}"
    for name in ["summary", "meaning", "action"]:
        assert len(expressions.annotation(text, name)) == len(rules.names())


def metrics_exist(binary, work):
    """Everything that is read is in a response of a gateway, and the expressions of the dashboard can be parsed."""
    dashboard = expressions.of_dashboard(DASHBOARD.read_text())
    groups = {"groups": [{"name": "dashboard", "rules": [
        {"record": f"panel:{at}", "expr": expression} for at, expression in enumerate(dashboard.values())
    ]}]}
    parsed = work / "dashboard.yml"
    parsed.write_text(json.dumps(groups))
    run("promtool", "check", "rules", "--lint=none", parsed)
    with Gateway(binary, work) as gateway:
        gateway.see_everything()
        kind, text = gateway.metrics()
        assert kind.startswith("text/plain; version=0.0.4"), kind
    run("promtool", "check", "metrics", input=text)
    known = expressions.served(text)
    read = expressions.of_rules(ALERTS.read_text()) | dashboard
    mistakes = [mistake for name, expression in read.items() for mistake in expressions.mistakes(name, expression, known)]
    assert not mistakes, "\n".join(mistakes)
    return len(read)


def main():
    with tempfile.TemporaryDirectory(prefix="tollgate-monitoring-") as folder:
        work = Path(folder)
        files_are_valid(work)
        alerts_fire(work)
        alerts_are_explained()
        read = metrics_exist(sys.argv[1], work)
    print(f"monitoring: {len(rules.names())} alerts tested, {read} expressions read what a gateway has; all passed")


if __name__ == "__main__":
    main()
