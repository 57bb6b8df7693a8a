"""What the alerts and the dashboard read from Prometheus: their expressions, metrics and labels."""

import json
import re

METRIC = re.compile(r"\b((?:tollgate|process)_\w+|up)\b(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|without) ?\(([^)]*)\)")
LABEL = re.compile(r"(\w+) *(?:=~|!~|!=|=)")
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$")
SAMPLE_LABEL = re.compile(r'(\w+)="')
ADDED = {"job", "instance", "le"}
"""What Prometheus adds, and the bound of a histogram's bucket."""
ITS_OWN = {"up": set()}
"""Series that Prometheus makes itself."""


def of_rules(text):
    """The expressions of a file of rules, with the alert of each. Comments in them are left out."""
    found = {}
    for rule in re.split(r"^ *- alert: ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = rule.partition("\n")
        block = re.match(r"( *)expr: (?:\|\n((?:\1  .*\n)+)|(.*)\n)", rest)
        found[name] = re.sub(r"^ *#.*\n", "", block.group(2) or block.group(3), flags=re.MULTILINE)
    return found


def annotation(text, name):
    """The values of an annotation, by alert."""
    rules = re.split(r"^ *- alert: ", text, flags=re.MULTILINE)[1:]
    return {rule.partition("\n")[0]: re.search(rf'^ *{name}: "(.*)"$', rule, re.MULTILINE).group(1) for rule in rules}


def of_dashboard(text):
    """The expressions of a dashboard, with variables replaced, by panel and query."""
    dashboard, found = json.loads(text), {}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for query in dashboard["annotations"]["list"]:
        found[f"annotation {query['name']}"] = query["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            # label_values(metric, label)
            inside = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            found[f"variable {variable['name']}"] = f"count by ({inside.group(2)}) ({inside.group(1)})"
    replaced = {"$__rate_interval": "5m", "$job": "tollgate", "$model": ".*"}
    for name, expression in found.items():
        for variable, value in replaced.items():
            expression = expression.replace(variable, value)
        assert "$" not in expression, f"{name}: an unknown variable in {expression}"
        found[name] = expression
    return found


def served(metrics):
    """The labels of each metric in a response of /metrics."""
    labels = dict(ITS_OWN)
    for line in metrics.splitlines():
        if line and not line.startswith("#"):
            sample = SAMPLE.match(line)
            labels.setdefault(sample.group(1), set()).update(SAMPLE_LABEL.findall(sample.group(2) or ""))
    return labels


def mistakes(name, expression, known):
    """What an expression reads and a gateway does not have."""
    metrics = METRIC.findall(expression)
    if not metrics:
        yield f"{name}: it reads no metric"
    present = set(ADDED)
    for metric, selector in metrics:
        if metric not in known:
            yield f"{name}: /metrics has no {metric}"
            continue
        present |= known[metric]
        for label in LABEL.findall(selector):
            if label not in known[metric] | ADDED:
                yield f"{name}: {metric} has no label {label}"
    for labels in GROUPING.findall(expression):
        for label in filter(None, map(str.strip, labels.split(","))):
            if label not in present:
                yield f"{name}: no metric of it has the label {label}"
