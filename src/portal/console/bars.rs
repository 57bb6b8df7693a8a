//! Stacked bar charts of the last minutes, rendered as SVG on the server. The legend repeats the totals as
//! text.

use maud::{Markup, html};

use crate::{gateway::traffic::Sums, portal::formatting::count};

// A unit is a tenth of a pixel at the chart's natural width.
const LEFT: u128 = 900;
const TOP: u128 = 150;
const PLOT_WIDTH: u128 = 6_200;
const PLOT_HEIGHT: u128 = 1_600;
const BASE: u128 = TOP + PLOT_HEIGHT;
/// The least height of a bar, so that small nonzero values stay visible.
const MIN_HEIGHT: u128 = 20;

/// A chart in which each bar sums up some seconds and stacks the series. The latest bar is on the right.
pub(crate) struct Bars<'a> {
    pub title: &'a str,
    pub seconds_per_bar: usize,
    pub series: Vec<Series>,
}

pub(crate) struct Series {
    name: &'static str,
    /// The colour number, as in the CSS class `series-N`.
    colour: u8,
    values: Vec<u64>,
}

impl Series {
    pub(crate) fn new(
        name: &'static str,
        colour: u8,
        seconds: &[Sums],
        seconds_per_bar: usize,
        value: impl Fn(Sums) -> u64,
    ) -> Self {
        let bars = seconds.chunks(seconds_per_bar.max(1));
        Self {
            name,
            colour,
            values: bars.map(|bar| value(Sums::of(bar))).collect(),
        }
    }

    fn total(&self) -> u64 {
        self.values.iter().copied().fold(0, u64::saturating_add)
    }

    fn at(&self, bar: usize) -> u128 {
        self.values.get(bar).copied().unwrap_or(0).into()
    }
}

impl Bars<'_> {
    pub(crate) fn draw(&self) -> Markup {
        let bars = self.series.iter().map(|series| series.values.len()).max();
        let bars = bars.unwrap_or(0).max(1);
        let sum = |bar| self.series.iter().map(|series| series.at(bar)).sum();
        let most = (0..bars).map(sum).max().unwrap_or(0);
        html! {
            figure.chart {
                figcaption { (self.title) ", each bar " (self.seconds_per_bar) " seconds" }
                svg viewBox="0 0 7200 2050" role="img" aria-label=(self.summary(most)) {
                    @for (value, y) in [(most, TOP), (0, BASE)] {
                        line x1=(LEFT) x2=(LEFT + PLOT_WIDTH) y1=(y) y2=(y) class=[(y == BASE).then_some("base")] {}
                        text.mark x=(LEFT - 100) y=(y + 45) text-anchor="end" { (shown(value)) }
                    }
                    text.mark x=(LEFT) y=(BASE + 220) { (bars * self.seconds_per_bar / 60) " minutes ago" }
                    text.mark x=(LEFT + PLOT_WIDTH) y=(BASE + 220) text-anchor="end" { "now" }
                    @for bar in 0..bars { (self.bar(bar, bars as u128, most.max(1))) }
                }
                ul.legend {
                    @for series in &self.series {
                        li {
                            span class={ "swatch series-" (series.colour) } {}
                            (series.name) " " span.muted { (count(series.total())) }
                        }
                    }
                }
            }
        }
    }

    /// One bar: each series is stacked on top of those before it.
    fn bar(&self, number: usize, bars: u128, most: u128) -> Markup {
        let x = LEFT + PLOT_WIDTH * number as u128 / bars;
        let width = (PLOT_WIDTH / bars).saturating_sub(10).max(1);
        let mut below = 0;
        let parts = self.series.iter().filter_map(|series| {
            let value = series.at(number);
            let bottom = BASE - below * PLOT_HEIGHT / most;
            below += value;
            let height = (bottom - (BASE - below * PLOT_HEIGHT / most)).max(MIN_HEIGHT);
            (value > 0).then_some((series, value, bottom.saturating_sub(height), height))
        });
        html! {
            @for (series, value, y, height) in parts {
                rect class={ "series-" (series.colour) } x=(x) y=(y) width=(width) height=(height) {
                    title { (series.name) ": " (shown(value)) }
                }
            }
        }
    }

    /// The chart in one sentence, for screen readers.
    fn summary(&self, most: u128) -> String {
        let each = self.series.iter();
        let each: Vec<_> = each
            .map(|series| format!("{} {}", series.name.to_lowercase(), count(series.total())))
            .collect();
        let (title, seconds) = (self.title, self.seconds_per_bar);
        let (each, most) = (each.join(", "), shown(most));
        format!("{title} of the last minutes: {each}; at most {most} in {seconds} seconds.")
    }
}

fn shown(value: u128) -> String {
    count(u64::try_from(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(requests: &[u64]) -> String {
        let second = |requests: &u64| Sums {
            requests: *requests,
            refused: *requests / 2,
            ..Sums::default()
        };
        let seconds: Vec<_> = requests.iter().map(second).collect();
        let bars = Bars {
            title: "Requests",
            seconds_per_bar: 2,
            series: vec![
                Series::new("All", 1, &seconds, 2, |sums| sums.requests),
                Series::new("Refused", 2, &seconds, 2, |sums| sums.refused),
            ],
        };
        bars.draw().into_string()
    }

    #[test]
    fn seconds_are_summed_into_stacked_bars() {
        let drawn = drawn(&[0, 0, 4, 4]);
        assert_eq!(drawn.matches("<rect").count(), 2, "{drawn}");
        assert!(
            drawn.contains("All: 8") && drawn.contains("Refused: 4"),
            "{drawn}"
        );
        assert!(drawn.contains("at most 12 in 2 seconds"), "{drawn}");
    }

    #[test]
    fn empty_and_huge_values_can_be_drawn() {
        assert!(!drawn(&[]).contains("<rect"));
        assert!(!drawn(&[0, 0]).contains("<rect"));
        let most = drawn(&[u64::MAX, u64::MAX, 1, 0]);
        assert_eq!(most.matches("<rect").count(), 3, "{most}");
    }
}
