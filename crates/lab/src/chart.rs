//! Panels of a figure as an experiment declares them: a measure, over the words of one dimension, with a line or a bar for each word of
//! another. Points are medians, and error bars their intervals.
//!
//! A time series is a dimension whose words are times, with [`Chart::linear`] and [`Chart::bare`]. A word that is no number, such as that of
//! the whole run, has no place on an axis of numbers and is left out.

use sidelong_figure::statistics::Median;
use sidelong_figure::{Axis, Line, Panel, Style};

use crate::drawing::Drawing;
use crate::measure::{Dimension, Measure};
use crate::samples::Samples;

/// A panel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chart {
    title: &'static str,
    /// The measure on the vertical axis.
    measure: &'static str,
    /// The dimension along the horizontal axis.
    x: &'static str,
    x_scale: Scale,
    /// The dimension whose words are the lines.
    by: &'static str,
    /// The pattern of the cases that are shown. Empty for all.
    cases: &'static str,
    y_scale: Scale,
    /// Another measure, whose lines are dashed, and what it is.
    beside: Option<(&'static str, &'static str)>,
    /// What figures are multiplied by for the vertical axis, and its title then.
    unit: Option<(f64, &'static str)>,
    /// Whether the first repetition is shown alone.
    is_first: bool,
    /// What cases are to reach, which is drawn dashed, and what it is.
    target: Option<(Target, &'static str)>,
    is_bare: bool,
}

/// What a case is to reach.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// Its own, if it has one.
    Own(fn(&str) -> Option<f64>),
    /// The target of all cases.
    Common(f64),
}

impl Target {
    fn of(self, case: &str) -> Option<f64> {
        match self {
            Target::Own(of) => of(case),
            Target::Common(at) => Some(at),
        }
    }
}

/// How values lie on an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scale {
    /// In the order of the cases, at equal distances, as bars.
    Words,
    /// In the order of the cases, at equal distances, as lines.
    Steps,
    Linear,
    /// As far as the values reach.
    Near,
    /// By logarithm.
    Log,
    /// By logarithm, from 1 B to 1 MB.
    Bytes,
}

impl Chart {
    /// Bars, which stand side by side for each word of `x`.
    pub(crate) const fn bars(
        title: &'static str,
        measure: &'static str,
        x: &'static str,
        by: &'static str,
    ) -> Chart {
        let (x_scale, y_scale) = (Scale::Words, Scale::Linear);
        let (beside, unit, target, is_first, is_bare) = (None, None, None, false, false);
        Chart { title, measure, x, x_scale, by, cases: "", y_scale, beside, unit, is_first, target, is_bare }
    }

    /// Lines over numbers, which lie by their logarithms to base 2.
    pub(crate) const fn lines(
        title: &'static str,
        measure: &'static str,
        x: &'static str,
        by: &'static str,
    ) -> Chart {
        Chart { x_scale: Scale::Log, ..Chart::bars(title, measure, x, by) }
    }

    /// The same panel of some cases.
    pub(crate) const fn of(self, cases: &'static str) -> Chart {
        Chart { cases, ..self }
    }

    /// The same panel with dashed lines of another measure.
    pub(crate) const fn beside(self, measure: &'static str, meaning: &'static str) -> Chart {
        Chart { beside: Some((measure, meaning)), ..self }
    }

    /// The same panel with another unit on the vertical axis.
    pub(crate) const fn unit(self, factor: f64, title: &'static str) -> Chart {
        Chart { unit: Some((factor, title)), ..self }
    }

    /// The same panel with the targets of its cases.
    pub(crate) const fn target(self, of: fn(&str) -> Option<f64>, meaning: &'static str) -> Chart {
        Chart { target: Some((Target::Own(of), meaning)), ..self }
    }

    /// The same panel with powers of ten on the vertical axis.
    pub(crate) const fn log(self) -> Chart {
        Chart { y_scale: Scale::Log, ..self }
    }

    /// The same lines, over numbers that lie as they are.
    pub(crate) const fn linear(self) -> Chart {
        Chart { x_scale: Scale::Linear, ..self }
    }

    /// The same lines, over words that stand at equal distances.
    pub(crate) const fn steps(self) -> Chart {
        Chart { x_scale: Scale::Steps, ..self }
    }

    /// The same lines, over sizes from 1 B to 1 MB.
    pub(crate) const fn bytes(self) -> Chart {
        Chart { x_scale: Scale::Bytes, ..self }
    }

    /// The same panel with a vertical axis that does not begin at 0, for ratios close to 1.
    pub(crate) const fn near(self) -> Chart {
        Chart { y_scale: Scale::Near, ..self }
    }

    /// The same panel with one target of all cases.
    pub(crate) const fn limit(self, at: f64, meaning: &'static str) -> Chart {
        Chart { target: Some((Target::Common(at), meaning)), ..self }
    }

    /// The same lines without marks, for points that are close together.
    pub(crate) const fn bare(self) -> Chart {
        Chart { is_bare: true, ..self }
    }

    /// The same panel of the first valid repetition alone, for points over time, where those of others fall elsewhere.
    pub(crate) const fn first(self) -> Chart {
        Chart { is_first: true, ..self }
    }

    fn panel(&self, samples: &Samples) -> Panel {
        let [x, by] = [self.x, self.by].map(|name| place(samples, name));
        let cases = self.shown(samples);
        let words = |at| distinct(cases.iter().filter_map(move |case| case.split('/').nth(at)));
        let x_words: Vec<&str> = words(x);
        let position = |word: &str| match self.x_scale {
            Scale::Words | Scale::Steps => {
                x_words.iter().position(|known| *known == word).map(|at| at as f64 + 1.0)
            }
            Scale::Linear | Scale::Near => word.parse().ok(),
            Scale::Log | Scale::Bytes => word.parse().ok().map(f64::log2),
        };
        let (factor, title) = self.unit.unwrap_or((1.0, self.measure(samples).label));
        let y = |value: f64| match self.y_scale {
            Scale::Log => (factor * value).log10(),
            _ => factor * value,
        };
        let line = |series: &str, measure: &str, style: Style| {
            let of_series = cases.iter().filter(|case| case.split('/').nth(by) == Some(series));
            let point = |case: &&str| {
                let series = &samples[case][measure];
                let shown = if self.is_first { Median::of(vec![series.at(0)?]) } else { series.median() };
                let Median { median, interval, .. } = shown?;
                let at = position(case.split('/').nth(x)?)?;
                let interval = interval.map(|(from, to)| (y(from), y(to)));
                Some((at, y(median), interval)).filter(|(_, y, _)| y.is_finite())
            };
            // A case that was not declared stands where it first came.
            let mut points: Vec<_> = of_series.filter_map(point).collect();
            points.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
            Line::with_intervals(style, points)
        };
        let style = |series: &str| self.style(&samples.dimensions[by], series);
        let dashed = |(measure, _)| words(by).into_iter().map(move |of| (of, measure, style(of).ideal()));
        let solid = words(by).into_iter().map(|of| (of, self.measure, style(of)));
        let all = self.beside.into_iter().flat_map(dashed).chain(solid);
        let mut lines: Vec<Line> = all.map(|(of, measure, style)| line(of, measure, style)).collect();
        let target = |case: &&str| Some((position(case.split('/').nth(x)?)?, y(self.target?.0.of(case)?)));
        let mut targets: Vec<(f64, f64)> = cases.iter().filter_map(target).collect();
        targets.sort_by(|a, b| a.0.total_cmp(&b.0));
        targets.dedup();
        let dash = |(at, y): (f64, f64)| Line::new(Style::TARGET, vec![(at - 0.4, y), (at + 0.4, y)]);
        match self.x_scale {
            Scale::Words => lines.extend(targets.into_iter().map(dash)),
            _ if targets.is_empty() => (),
            _ => lines.insert(0, Line::new(Style::TARGET, targets)),
        }
        let ys = || lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
        let dimension = &samples.dimensions[x];
        let numbers = || x_words.iter().filter_map(|word| word.parse::<f64>().ok());
        let (least, most) = (numbers().fold(f64::MAX, f64::min), numbers().fold(f64::MIN, f64::max));
        let names = || x_words.iter().map(|word| dimension.short_of(word).to_owned()).collect();
        let x = match self.x_scale {
            Scale::Log if least < most => Axis::powers_of_two(dimension.label, least, most),
            Scale::Bytes => Axis::bytes(dimension.label),
            Scale::Linear if least < most => Axis::between(dimension.label, least, most),
            _ => Axis::categories(dimension.label, names()),
        };
        let (lowest, highest) = (ys().fold(f64::MAX, f64::min), ys().fold(f64::MIN, f64::max));
        let room = 0.1 * (highest - lowest);
        Panel {
            title: self.title.to_owned(),
            y: match self.y_scale {
                Scale::Log => Axis::powers_of_ten(title, ys()),
                Scale::Near if lowest < highest => Axis::between(title, lowest - room, highest + room),
                _ if lowest < 0.0 && lowest < highest => {
                    Axis::between(title, lowest - room, highest.max(0.0) + room)
                }
                _ => Axis::from_zero(title, lines.iter().map(Line::most).fold(0.0, f64::max)),
            },
            x,
            lines,
        }
    }

    fn shown<'a>(&self, samples: &'a Samples) -> Vec<&'a str> {
        match self.cases {
            "" => samples.cases(&samples.all()),
            pattern => samples.cases(pattern),
        }
    }

    fn measure(&self, samples: &Samples) -> &'static Measure {
        let measure = samples.measures.iter().find(|measure| measure.name == self.measure);
        measure.unwrap_or_else(|| panic!("no measure {} is declared", self.measure))
    }

    /// How the line of a word is drawn.
    fn style(&self, dimension: &Dimension, word: &str) -> Style {
        let style = dimension.find(word).map_or(Style::PAPER, |word| word.style);
        match self.x_scale {
            Scale::Words => style.bars(),
            _ if self.is_bare => style.bare(),
            _ => style,
        }
    }

    /// The entries of the legend.
    fn legend(&self, samples: &Samples) -> Vec<(String, Style)> {
        let at = place(samples, self.by);
        let dimension = &samples.dimensions[at];
        let cases = self.shown(samples);
        let words = distinct(cases.iter().filter_map(|case| case.split('/').nth(at)));
        let entry = |word: &str| (dimension.label_of(word).to_owned(), self.style(dimension, word));
        words.into_iter().map(entry).collect()
    }
}

/// The place of a dimension in a case.
fn place(samples: &Samples, name: &str) -> usize {
    let place = samples.dimensions.iter().position(|dimension| dimension.name == name);
    place.unwrap_or_else(|| panic!("no dimension {name} is declared"))
}

/// Draws the panels side by side. The legend has what the first panel with an entry shows of it.
pub(crate) fn draw(charts: &[Chart], samples: &Samples) -> Drawing {
    let mut legend: Vec<(String, Style)> = Vec::new();
    for entry in charts.iter().flat_map(|chart| chart.legend(samples)) {
        if legend.iter().all(|(label, _)| *label != entry.0) {
            legend.push(entry);
        }
    }
    let panels = charts.iter().map(|chart| chart.panel(samples)).collect();
    let meaning = |chart: &Chart| chart.beside.map(|of| of.1).or(chart.target.map(|of| of.1));
    let dashed = charts.iter().find_map(meaning);
    Drawing { panels, legend, dashed }
}

/// Each of some words once, in their order.
fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for word in words {
        if !distinct.contains(&word) {
            distinct.push(word);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::samples;

    #[test]
    fn bars_stand_at_the_words_of_a_dimension() {
        let drawing =
            draw(&[Chart::bars("t", "p50_us", "load", "system").unit(2.0, "half a µs")], &samples());
        let panel = &drawing.panels[0];
        assert_eq!(
            (&panel.x.names[..], panel.y.title.as_str()),
            (&["idle".to_owned(), "busy".into()][..], "half a µs")
        );
        let points: Vec<_> = panel.lines.iter().map(|line| &line.points[..]).collect();
        assert_eq!(points, [&[(1.0, 20.0)][..], &[(1.0, 30.0)]], "medians, of what was measured");
        let labels: Vec<_> = drawing.legend.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, ["our system", "the other"]);
        assert!(drawing.legend[0].1 == Style::OURS.bars());
    }

    #[test]
    fn targets_are_dashes_at_words_and_one_line_over_numbers() {
        let mut samples = samples();
        samples.put("ours/64", [("p99_us", 100.0)]);
        samples.put("ours/4", [("p99_us", 10.0)]);
        let targets = |chart: Chart| {
            let drawing =
                draw(&[chart.target(|case| case.starts_with("ours").then_some(20.0), "goal")], &samples);
            assert_eq!(drawing.dashed, Some("goal"));
            let lines = drawing.panels[0].lines.clone().into_iter().filter(|line| line.style.is_dashed());
            lines.map(|line| line.points).collect::<Vec<_>>()
        };
        let words = targets(Chart::bars("", "p99_us", "load", "system").of("*/idle,busy"));
        assert_eq!(words, [[(0.6, 20.0), (1.4, 20.0)], [(1.6, 20.0), (2.4, 20.0)]]);
        let numbers = targets(Chart::lines("", "p99_us", "load", "system").of("*/64,4"));
        assert_eq!(numbers, [[(2.0, 20.0), (6.0, 20.0)]]);
    }

    #[test]
    fn lines_lie_by_their_logarithms_and_have_intervals() {
        let mut samples = samples();
        for at in 0..3 {
            samples.begin();
            samples.put("ours/64", [("p99_us", 100.0)]);
            samples.put("ours/4", [("p99_us", 10.0 + f64::from(at))]);
        }
        let chart = Chart::lines("", "p99_us", "load", "system").of("ours/64,4").log();
        let drawing = draw(&[chart, chart.first()], &samples.only(&[3, 4, 5]));
        let line = &drawing.panels[0].lines[0];
        assert_eq!(line.points, [(2.0, 11f64.log10()), (6.0, 2.0)], "from left to right");
        assert_eq!(drawing.panels[0].x.ticks, [2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(drawing.panels[1].lines[0].points, [(2.0, 1.0), (6.0, 2.0)], "the first alone");
    }

    #[test]
    fn a_time_series_has_no_marks_and_its_limit_goes_across() {
        let mut samples = samples();
        for (load, p99_us) in [("0.05", 10.0), ("0.15", 30.0)] {
            samples.put(&format!("ours/{load}"), [("p99_us", p99_us)]);
        }
        let chart = Chart::lines("", "p99_us", "load", "system").of("ours/*").linear().bare();
        let marked = Chart::lines("", "p99_us", "load", "system").of("ours/*").limit(50.0, "target");
        let drawing = draw(&[chart.limit(50.0, "target"), marked], &samples);
        let [limit, line] = &drawing.panels[0].lines[..] else { panic!("two lines") };
        assert_eq!(line.points, [(0.05, 10.0), (0.15, 30.0)], "without the words idle and busy");
        assert!(line.style == Style::OURS.bare() && limit.style == Style::TARGET);
        assert_eq!(limit.points, [(0.05, 50.0), (0.15, 50.0)]);
        assert!(drawing.panels[0].y.range.end > 50.0);
        assert_eq!((drawing.legend.len(), drawing.dashed), (1, Some("target")));
    }
}
