"""What each alert of deploy/prometheus/alerts.yml fires on, and what it does not fire on, as tests of promtool.

A row has the alert, the minute at which it is looked at, series that fire it, and similar ones that do not. Series are
written as promtool reads them: `0+1x9` is a value and nine more, each greater by one, a minute apart; `_` is a gap.
"""

import json


def steady(value, minutes=40):
    return f"{value}x{minutes}"


def growing(by, minutes=40):
    return f"0+{by}x{minutes}"


def histogram(name, labels, buckets, minutes=40):
    """Series of a histogram: `buckets` has how many observations per minute are below each bound."""
    return {f'{name}_bucket{{{labels}, le="{bound}"}}': growing(count, minutes) for bound, count in buckets.items()} | {
        f"{name}_count{{{labels}}}": growing(max(buckets.values()), minutes)
    }


def requests(ok, failed, route="/v1/chat/completions"):
    return {
        f'tollgate_requests_total{{route="{route}", status="200"}}': growing(ok),
        f'tollgate_requests_total{{route="{route}", status="503"}}': growing(failed),
    }


def attempts(answered, failed, outcome="status"):
    return {
        'tollgate_attempts_total{upstream="vendor", outcome="answered"}': growing(answered),
        f'tollgate_attempts_total{{upstream="vendor", outcome="{outcome}"}}': growing(failed),
    }


# One event at the minute 30: of a series that was there before, and of one that begins with it.
ONE_MORE = "5x29 6x10"
FIRST = "_x29 1x10"
SINCE_LONG = "1x100"

ROWS = [
    ("TollgateDown", 5, {"up": steady(0)}, {"up": steady(1)}),
    ("TollgateDown", 5, {"up": "1x2 0x10"}, {"up": "1x4 0 1x10"}),
    ("TollgateAbsent", 10, {'up{job="another"}': steady(1)}, {"up": steady(0)}),
    ("TollgateRestarting", 30, {"process_start_time_seconds": "0x20 60 120 180x20"}, {"process_start_time_seconds": "0x20 60 120x20"}),
    ("TollgateLedgerNotReady", 5, {"tollgate_ledger_ready": steady(0)}, {"tollgate_ledger_ready": steady(1)}),
    ("TollgateLimitsNotReady", 5, {"tollgate_limits_ready": steady(0)}, {"tollgate_limits_ready": steady(1)}),
    ("TollgateErrorRate", 20, requests(900, 100), requests(990, 10)),
    ("TollgateErrorRate", 20, requests(0, 100), requests(0, 100, route="/portal/sign-in")),
    # Too few requests to say anything.
    ("TollgateErrorRate", 20, requests(0, 7), requests(0, 5)),
    ("TollgateOverloaded", 20, {'tollgate_refusals_total{code="overloaded"}': growing(60)}, {'tollgate_refusals_total{code="rpm_exceeded"}': growing(60)}),
    ("TollgateOverloaded", 20, {'tollgate_refusals_total{code="body_memory_exhausted"}': growing(60)}, {'tollgate_refusals_total{code="overloaded"}': growing(1)}),
    ("TollgateLaneLag", 20, {"tollgate_lane_lag_seconds": steady(0.2)}, {"tollgate_lane_lag_seconds": "0.2 0 0.2 0 0.2 0 0.2 0 0.2 0 0.2 0 0.2 0 0.2 0 0.2 0 0.2 0 0.2"}),
    (
        "TollgateFirstByteSlow",
        30,
        histogram("tollgate_first_byte_seconds", 'model="m"', {"10": 50, "30": 100, "+Inf": 100}),
        histogram("tollgate_first_byte_seconds", 'model="m"', {"10": 99, "30": 100, "+Inf": 100}),
    ),
    (
        "TollgateFirstByteSlow",
        30,
        histogram("tollgate_first_byte_seconds", 'model="m"', {"10": 0, "30": 2, "+Inf": 2}),
        # Too few calls to say anything.
        histogram("tollgate_first_byte_seconds", 'model="m"', {"10": 0, "30": 1, "+Inf": 1}),
    ),
    ("TollgateProviderErrors", 30, attempts(70, 30), attempts(90, 10)),
    *(
        ("TollgateProviderErrors", 30, attempts(0, 10, fault), attempts(0, 10, "refused"))
        for fault in ["connect", "timeout", "rate_limited", "broken", "malformed", "reported"]
    ),
    *(("TollgateProviderErrors", 30, attempts(0, 10), attempts(0, 10, other)) for other in ["empty", "not_json", "stopping"]),
    # A single attempt in ten minutes, which fails.
    ("TollgateProviderErrors", 30, attempts(0, 2), {'tollgate_attempts_total{upstream="vendor", outcome="status"}': "1x18 2x9 3x20"}),
    (
        "TollgateProviderRefuses",
        5,
        {'tollgate_alerts_open{kind="upstream.refuses"}': steady(1)},
        {'tollgate_alerts_open{kind="upstream.failing"}': steady(1)},
    ),
    ("TollgateChargesSpooled", 10, {"tollgate_spooled_charges": steady(3)}, {"tollgate_spooled_charges": "3 0x20"}),
    ("TollgateAuditViolations", 5, {"tollgate_audit_violations": steady(1)}, {"tollgate_audit_violations": steady(0)}),
    *(
        (alert, at, {series: value}, {series: quiet})
        for alert, at, series in [
            ("TollgateUnbilledStreams", 32, 'tollgate_unbilled_streams_total{model="m"}'),
            ("TollgateBelowCost", 32, 'tollgate_below_cost_calls_total{model="m"}'),
            ("TollgateUsageOverBound", 32, 'tollgate_usage_over_bound_total{upstream="vendor"}'),
        ]
        for value, quiet in [(ONE_MORE, SINCE_LONG), (FIRST, SINCE_LONG)]
    ),
    ("TollgateLateSettlements", 32, {"tollgate_late_settlements_total": ONE_MORE}, {"tollgate_late_settlements_total": SINCE_LONG}),
    ("TollgateStrayHolds", 32, {"tollgate_stray_holds_total": ONE_MORE}, {"tollgate_stray_holds_total": SINCE_LONG}),
    *(
        (
            "TollgateClockJump",
            32,
            {f"tollgate_{one}_clock_jumps_total": ONE_MORE, f"tollgate_{other}_clock_jumps_total": SINCE_LONG},
            {f"tollgate_{one}_clock_jumps_total": SINCE_LONG, f"tollgate_{other}_clock_jumps_total": SINCE_LONG},
        )
        for one, other in [("ledger", "limits"), ("limits", "ledger")]
    ),
    ("TollgateConfigRejected", 5, {"tollgate_config_rejected": steady(1)}, {"tollgate_config_rejected": steady(0)}),
    (
        "TollgateConfigsDiffer",
        10,
        {'tollgate_config_version{instance="a"}': steady(7), 'tollgate_config_version{instance="b"}': steady(6)},
        {'tollgate_config_version{instance="a"}': steady(7), 'tollgate_config_version{instance="b"}': "6 6 7x20"},
    ),
    (
        "TollgateLedgerSlow",
        30,
        histogram("tollgate_ledger_commit_seconds", 'instance="a"', {"0.1": 90, "0.5": 100, "+Inf": 100}),
        histogram("tollgate_ledger_commit_seconds", 'instance="a"', {"0.1": 100, "0.5": 100, "+Inf": 100}),
    ),
    (
        "TollgateBodyMemoryNearLimit",
        10,
        {"tollgate_body_memory_bytes": steady(90), "tollgate_body_memory_limit_bytes": steady(100)},
        {"tollgate_body_memory_bytes": steady(70), "tollgate_body_memory_limit_bytes": steady(100)},
    ),
    (
        "TollgateMemoryNearLimit",
        20,
        {"process_resident_memory_bytes": steady(1_000_000_000), "tollgate_memory_limit_bytes": steady(1 << 30)},
        {"process_resident_memory_bytes": steady(1_000_000_000), "tollgate_memory_limit_bytes": steady(1 << 31)},
    ),
    (
        "TollgateFilesNearLimit",
        10,
        {"process_open_fds": steady(900), "process_max_fds": steady(1000)},
        {"process_open_fds": steady(100), "process_max_fds": steady(1000)},
    ),
]


def of_job(series):
    """The name of a series, with the job's label if it names no other."""
    name, _, labels = series.partition("{")
    labels = labels.rstrip("}")
    if 'job="' not in labels:
        labels = ", ".join(filter(None, ['job="tollgate"', labels]))
    return f"{name}{{{labels}}}"


def tests(rule_file):
    """The file for `promtool test rules`."""
    groups = []
    for alert, minute, firing, quiet in ROWS:
        for series, fires in [(firing, 1), (quiet, 0)]:
            groups.append({
                "interval": "1m",
                "input_series": [{"series": of_job(name), "values": values} for name, values in series.items()],
                "promql_expr_test": [{
                    "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": "{}", "value": fires}],
                }],
            })
    return json.dumps({"rule_files": [str(rule_file)], "evaluation_interval": "1m", "tests": groups})


def names():
    return {row[0] for row in ROWS}
