//! Stacked bar charts by day, hour or minute, rendered as SVG on the server, so that they need no script.
//!
//! No information is in the picture alone, for accessibility: the chart has a label with a summary, each bar
//! has a title, the legend names the colours, and the page repeats the numbers in a table.

use maud::{Markup, html};

use super::{days, formatting, table::scrolled};
use crate::base::money::NanoUsd;

/// The number of series with a colour of their own. If there are more, the last ones are merged into one.
const MAX_SERIES: usize = 7;
/// The most grid lines above the base line.
const MAX_GRID_LINES: u128 = 5;
/// The most day labels that fit beside each other on the axis.
const MAX_DAY_LABELS: usize = 7;

// A unit is a tenth of a pixel at the chart's natural width.
const LEFT: u128 = 1_000;
const TOP: u128 = 150;
const PLOT_WIDTH: u128 = 5_950;
const PLOT_HEIGHT: u128 = 2_000;
const BASE: u128 = TOP + PLOT_HEIGHT;
const RIGHT: u128 = LEFT + PLOT_WIDTH;
/// The least height of a bar, so that small nonzero values stay visible.
const MIN_HEIGHT: u128 = 20;

/// A chart with one bar per day, or other span. Every bar stacks the series in the order given.
pub(crate) struct Chart<'a> {
    /// The title, e.g. "Daily cost".
    pub title: &'a str,
    pub unit: Unit,
    /// In ascending order.
    pub days: &'a [String],
    /// The most important series first. Colours follow the order, so two charts with series in equal order have
    /// equal colours.
    pub series: Vec<Series>,
}

pub(crate) struct Series {
    pub name: String,
    /// One value per day.
    pub values: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Values are nano-dollars.
    Dollars,
    Requests,
}

impl Unit {
    fn amount(self, value: u128) -> String {
        match self {
            Self::Dollars => dollars(value),
            Self::Requests if value == 1 => "1 request".into(),
            Self::Requests => {
                let value = u64::try_from(value).unwrap_or(u64::MAX);
                format!("{} requests", formatting::count(value))
            }
        }
    }

    /// The value in short form, as an axis label.
    fn axis_label(self, value: u128) -> String {
        match self {
            Self::Dollars => dollars(value),
            Self::Requests => shortened(value),
        }
    }
}

impl Series {
    fn total(&self) -> u128 {
        self.values.iter().copied().map(u128::from).sum()
    }

    fn on(&self, day: usize) -> u64 {
        self.values.get(day).copied().unwrap_or(0)
    }
}

impl Chart<'_> {
    pub(crate) fn draw(self) -> Markup {
        let (title, unit, days) = (self.title, self.unit, self.days);
        let series = coloured(self.series);
        html! {
            figure.chart {
                figcaption {
                    (title)
                    // A script shows times in the time zone of the reader.
                    @if days.iter().any(|day| days::is_time(day)) { " " span.muted data-zone { "(UTC)" } }
                }
                @if series.is_empty() {
                    p.muted { "No usage in this period." }
                } @else {
                    (scrolled(title, &picture(title, unit, days, &series)))
                    ul.legend {
                        @for (number, series) in &series {
                            li {
                                span class={ "swatch " (class(*number)) } {}
                                (series.name) " "
                                span.muted { (unit.amount(series.total())) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A series with its colour number.
type Coloured = (usize, Series);

/// Numbers the series by colour and leaves out those that are zero on all days, without renumbering the others.
fn coloured(mut series: Vec<Series>) -> Vec<Coloured> {
    if series.len() > MAX_SERIES {
        let others = series.split_off(MAX_SERIES - 1);
        let days = others.iter().map(|other| other.values.len()).max();
        let sum_on = |day| {
            let values = others.iter().map(|other| other.on(day));
            values.fold(0, u64::saturating_add)
        };
        series.push(Series {
            name: format!("{} others", others.len()),
            values: (0..days.unwrap_or(0)).map(sum_on).collect(),
        });
    }
    let numbered = (1..).zip(series);
    numbered.filter(|(_, series)| series.total() > 0).collect()
}

fn picture(title: &str, unit: Unit, days: &[String], series: &[Coloured]) -> Markup {
    let totals: Vec<u128> = (0..days.len())
        .map(|day| {
            let values = series.iter().map(|(_, series)| series.on(day));
            values.map(u128::from).sum()
        })
        .collect();
    let most = totals.iter().copied().max().unwrap_or(0);
    let step = step(most);
    let lines = most.div_ceil(step).max(1);
    let scale = Scale {
        top: lines * step,
        days: days.len().max(1) as u128,
    };
    html! {
        svg viewBox="0 0 7200 2500" role="img" aria-label=(summary(title, unit, days, &totals)) {
            @for line in 0..=lines {
                @let y = scale.y(line * step);
                line x1=(LEFT) x2=(RIGHT) y1=(y) y2=(y) class=[(line == 0).then_some("base")] {}
                text.mark x=(LEFT - 100) y=(y + 45) text-anchor="end" { (unit.axis_label(line * step)) }
            }
            @for (number, day) in days.iter().enumerate() {
                @if has_label(number, days.len()) {
                    @let time = days::is_time(day).then_some(day);
                    text.mark x=(scale.middle(number)) y=(BASE + 220) text-anchor="middle" data-time=[time] {
                        (days::short(day))
                    }
                }
                (bar(&scale, unit, number, day, series))
            }
        }
    }
}

/// The bar of one day: each series is stacked on top of those before it.
fn bar(scale: &Scale, unit: Unit, number: usize, day: &str, series: &[Coloured]) -> Markup {
    let (mut sum, mut floor) = (0, BASE);
    let parts = series.iter().filter_map(|(colour, series)| {
        let value = u128::from(series.on(number));
        if value == 0 {
            return None;
        }
        sum += value;
        let y = scale.y(sum).min(floor - MIN_HEIGHT);
        let height = floor - y;
        floor = y;
        Some((colour, series, value, y, height))
    });
    html! {
        @for (colour, series, value, y, height) in parts {
            rect class=(class(*colour)) x=(scale.left(number)) y=(y) width=(scale.width()) height=(height) {
                title { (days::long(day)) ", " (series.name) ": " (unit.amount(value)) }
            }
        }
    }
}

/// Converts values and days to chart coordinates.
struct Scale {
    /// The value of the highest grid line.
    top: u128,
    days: u128,
}

impl Scale {
    fn y(&self, value: u128) -> u128 {
        BASE - value * PLOT_HEIGHT / self.top
    }

    fn width(&self) -> u128 {
        PLOT_WIDTH * 8 / (self.days * 10)
    }

    fn left(&self, day: usize) -> u128 {
        self.middle(day) - self.width() / 2
    }

    fn middle(&self, day: usize) -> u128 {
        LEFT + PLOT_WIDTH * (2 * day as u128 + 1) / (2 * self.days)
    }
}

fn class(number: usize) -> String {
    format!("series-{number}")
}

/// Whether a day has an axis label. Labels are evenly spaced and include the last day.
fn has_label(day: usize, days: usize) -> bool {
    (days - 1 - day).is_multiple_of(days.div_ceil(MAX_DAY_LABELS))
}

/// The smallest of 1, 2, 5, 10, 20, 50, … with which at most [`MAX_GRID_LINES`] steps reach `most`.
fn step(most: u128) -> u128 {
    let powers = std::iter::successors(Some(1_u128), |power| power.checked_mul(10));
    let mut steps =
        powers.flat_map(|power| [1, 2, 5].map(|digit: u128| digit.saturating_mul(power)));
    let found = steps.find(|step| most.div_ceil(*step) <= MAX_GRID_LINES);
    found.unwrap_or(most)
}

/// The chart in one sentence, for screen readers.
fn summary(title: &str, unit: Unit, days: &[String], totals: &[u128]) -> String {
    let (Some(first), Some(last)) = (days.first(), days.last()) else {
        return title.to_owned();
    };
    let all = unit.amount(totals.iter().sum());
    let highest = days.iter().zip(totals).max_by_key(|(_, total)| **total);
    let most = highest.map_or_else(String::new, |(day, total)| {
        format!(", most on {} ({})", days::long(day), unit.amount(*total))
    });
    let (first, last) = (days::long(first), days::long(last));
    format!("{title}, {first} to {last}: {all} in total{most}.")
}

fn dollars(nanos: u128) -> String {
    formatting::money(NanoUsd::new(i64::try_from(nanos).unwrap_or(i64::MAX)))
}

/// A short form such as "950", "1.5k" or "20M". One decimal is exact, because grid lines are at round numbers.
fn shortened(value: u128) -> String {
    let units = [
        (1_000_000_000_000, "T"),
        (1_000_000_000, "B"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    let Some((size, unit)) = units.into_iter().find(|(size, _)| value >= *size) else {
        return value.to_string();
    };
    match value % size * 10 / size {
        0 => format!("{}{unit}", value / size),
        tenths => format!("{}.{tenths}{unit}", value / size),
    }
}

#[cfg(test)]
mod tests;
