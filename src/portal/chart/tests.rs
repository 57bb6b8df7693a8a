use super::*;

fn days(count: u16) -> Vec<String> {
    days::last(count, 1_794_787_200) // 2026-11-16
}

fn series(name: &str, values: &[u64]) -> Series {
    Series {
        name: name.into(),
        values: values.to_vec(),
    }
}

fn drawn(unit: Unit, days: &[String], series: Vec<Series>) -> String {
    let title = "Cost a day";
    let chart = Chart {
        title,
        unit,
        days,
        series,
    };
    // One element a line, for readable snapshots.
    chart.draw().into_string().replace("><", ">\n<")
}

#[test]
fn bars_are_stacked_and_labelled() {
    let all = vec![
        series("svc-pro", &[0, 1_000_000, 500_000_000]),
        series("svc-standard", &[0, 2_000_000_000, 500_000_000]),
    ];
    insta::assert_snapshot!(drawn(Unit::Dollars, &days(3), all));
}

#[test]
fn names_are_escaped() {
    let name = r#"<script>alert("1")</script>&'"#;
    let drawn = drawn(Unit::Requests, &days(1), vec![series(name, &[3])]);
    assert!(!drawn.contains("<script"), "{drawn}");
    assert_eq!(drawn.matches("&lt;script&gt;").count(), 2, "{drawn}");
}

#[test]
fn an_empty_chart_shows_a_text() {
    for all in [vec![], vec![series("a", &[0, 0])]] {
        let drawn = drawn(Unit::Requests, &days(2), all);
        assert!(drawn.contains("No usage"), "{drawn}");
        assert!(!drawn.contains("<svg"), "{drawn}");
    }
}

#[test]
fn the_largest_values_fit() {
    let number = |text: &str, name: &str| -> u128 {
        let (_, rest) = text.split_once(&format!(" {name}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    for unit in [Unit::Dollars, Unit::Requests] {
        let all = vec![series("a", &[u64::MAX, 1]), series("b", &[u64::MAX, 0])];
        let drawn = drawn(unit, &days(2), all);
        let rects = drawn.lines().filter(|line| line.starts_with("<rect"));
        let rects: Vec<_> = rects.collect();
        assert_eq!(rects.len(), 3, "{drawn}");
        for rect in rects {
            let (y, height) = (number(rect, "y"), number(rect, "height"));
            assert!(y + height <= BASE && height >= MIN_HEIGHT, "{rect}");
        }
    }
}

#[test]
fn seven_series_have_a_colour_and_more_are_drawn_as_others() {
    let many = |count: u64| {
        (1..=count)
            .map(|n| series(&format!("m{n}"), &[n]))
            .collect()
    };
    let seven = drawn(Unit::Requests, &days(1), many(7));
    assert!(seven.contains("m1<") || seven.contains("m1 <"), "{seven}");
    assert!(!seven.contains("others"), "{seven}");
    let nine = drawn(Unit::Requests, &days(1), many(9));
    assert_eq!(nine.matches("<rect").count(), 7, "{nine}");
    // The sum of series 7, 8 and 9.
    assert!(nine.contains("3 others: 24 requests"), "{nine}");
    assert!(!nine.contains("series-8"), "{nine}");
}

#[test]
fn series_of_zeros_are_left_out_without_changing_other_colours() {
    let all = vec![series("a", &[0]), series("b", &[2])];
    let drawn = drawn(Unit::Requests, &days(1), all);
    assert!(drawn.contains("series-2"), "{drawn}");
    assert!(!drawn.contains("series-1"), "{drawn}");
}

#[test]
fn grid_lines_are_multiples_of_one_two_or_five() {
    for (most, expected) in [
        (0, 1),
        (1, 1),
        (5, 1),
        (6, 2),
        (10, 2),
        (11, 5),
        (25, 5),
        (26, 10),
        (1_000, 200),
        (1_001, 500),
        (u128::from(u64::MAX), 5_000_000_000_000_000_000),
    ] {
        assert_eq!(step(most), expected, "{most}");
    }
}

#[test]
fn axis_labels_are_short_and_exact() {
    for (value, mark) in [
        (0, "0"),
        (999, "999"),
        (1_000, "1k"),
        (1_500, "1.5k"),
        (25_000, "25k"),
        (1_200_000, "1.2M"),
        (20_000_000_000, "20B"),
        (5_000_000_000_000, "5T"),
    ] {
        assert_eq!(shortened(value), mark);
    }
}

#[test]
fn the_last_day_is_labelled_and_all_labels_fit() {
    for days in [1, 2, 7, 30, 90] {
        let named = (0..days).filter(|day| has_label(*day, days)).count();
        assert!(
            has_label(days - 1, days) && named <= MAX_DAY_LABELS,
            "{days}"
        );
    }
}
