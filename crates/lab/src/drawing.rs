//! Figures as a study draws them for one repetition, and how several become one with error bars.

use sidelong_figure::statistics::Median;
use sidelong_figure::{self as figure, Axis, Line, Panel, Style};

use crate::error::Result;

/// What a study draws for one repetition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drawing {
    pub(crate) panels: Vec<Panel>,
    pub(crate) legend: Vec<(String, Style)>,
    /// What a dashed line means, the same in all panels.
    pub(crate) dashed: Option<&'static str>,
    /// Whether points lie where they fall in time, so that the points of two repetitions do not share positions. The first
    /// repetition is then drawn alone.
    pub(crate) is_one_repetition: bool,
}

/// Draws the drawings of all repetitions as one SVG.
pub(crate) fn draw(title: &str, drawings: Vec<Drawing>) -> Result<String> {
    let drawing = merge(drawings);
    let mut legend = drawing.legend;
    // Dashed lines have one entry, which states their meaning.
    legend.retain(|(_, style)| !style.is_dashed());
    let lines = || drawing.panels.iter().flat_map(|panel| &panel.lines);
    if let Some(line) = lines().find(|line| line.style.is_dashed()) {
        let meaning = drawing.dashed.expect("a study that draws dashed lines says what they are");
        let style = if drawing
            .panels
            .iter()
            .all(|p| p.lines.iter().all(|l| !l.style.is_dashed() || l.style == line.style))
        {
            line.style
        } else {
            Style::TARGET
        };
        legend.push((meaning.to_owned(), style));
    }
    Ok(figure::draw(title, &drawing.panels, &legend)?)
}

/// Merges the drawings of all repetitions: each point of a line becomes the median, with its interval.
fn merge(mut drawings: Vec<Drawing>) -> Drawing {
    let mut first = drawings.remove(0);
    if !first.is_one_repetition {
        for (at, panel) in first.panels.iter_mut().enumerate() {
            let others: Vec<&Panel> = drawings.iter().filter_map(|other| other.panels.get(at)).collect();
            for other in &others {
                panel.x = together(&panel.x, &other.x);
                panel.y = together(&panel.y, &other.y);
            }
            for (at, line) in panel.lines.iter_mut().enumerate() {
                let of_others = others.iter().filter_map(|panel| panel.lines.get(at));
                let all: Vec<(f64, f64)> =
                    line.points.iter().chain(of_others.flat_map(|line| &line.points)).copied().collect();
                *line = of_all(line.style, all);
            }
        }
    }
    share_scales(&mut first.panels);
    first
}

/// The line through the medians of points at the same x.
fn of_all(style: Style, mut points: Vec<(f64, f64)>) -> Line {
    let same = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.abs().max(1.0);
    // Lines go from left to right. Those that do not have each position once.
    if !points.is_sorted_by(|a, b| a.0 <= b.0) {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let mut line = Line::new(style, Vec::new());
    for place in points.chunk_by(|a, b| same(a.0, b.0)) {
        let ys: Vec<f64> = place.iter().map(|(_, y)| *y).collect();
        if let Some(Median { median, interval, .. }) = Median::of(ys) {
            line.points.push((place[0].0, median));
            line.intervals.extend(interval.map(|interval| (place[0].0, interval)));
        }
    }
    line
}

/// Gives panels of the same quantity one scale, so that they can be compared.
fn share_scales(panels: &mut [Panel]) {
    for at in 0..panels.len() {
        let same = |panel: &&Panel| panel.y.title == panels[at].y.title;
        let y = panels.iter().filter(same).fold(panels[at].y.clone(), |y, panel| together(&y, &panel.y));
        panels[at].y = y;
    }
}

/// An axis that covers both.
fn together(one: &Axis, other: &Axis) -> Axis {
    let range = one.range.start.min(other.range.start)..one.range.end.max(other.range.end);
    let span = |axis: &Axis| axis.range.end - axis.range.start;
    let wider = if span(one) >= span(other) { one } else { other };
    if range == wider.range {
        return wider.clone();
    }
    let ticks = match wider.ticks[..] {
        [first, second, ..] => {
            let step = second - first;
            let lowest = first - ((first - range.start) / step).floor() * step;
            (0..)
                .map(|n| lowest + f64::from(n) * step)
                .take_while(|tick| *tick <= range.end + step * 1e-9)
                .collect()
        }
        _ => wider.ticks.clone(),
    };
    Axis { range, ticks, ..wider.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(ys: [f64; 2], most: f64) -> Drawing {
        let points = vec![(1.0, ys[0]), (2.0, ys[1])];
        let panel = |title: &str| Panel {
            title: title.to_owned(),
            x: Axis::counting("x", 2),
            y: Axis::from_zero("requests/s", most),
            lines: vec![Line::new(Style::OURS, points.clone())],
        };
        let other = Panel { y: Axis::from_zero("ms", 1.0), ..panel("c") };
        Drawing { panels: vec![panel("a"), panel("b"), other], ..Drawing::default() }
    }

    #[test]
    fn repetitions_become_medians_with_error_bars() {
        let three = || vec![drawing([1.0, 5.0], 5.0), drawing([3.0, 6.0], 6.0), drawing([2.0, 7.0], 7.0)];
        let merged = merge(three());
        let line = &merged.panels[0].lines[0];
        assert_eq!(line.points, [(1.0, 2.0), (2.0, 6.0)]);
        assert!(line.intervals.is_empty(), "three are too few for 95 %");
        let six = merge([three(), three()].concat());
        assert_eq!(six.panels[0].lines[0].intervals, [(1.0, (1.0, 3.0)), (2.0, (5.0, 7.0))]);
        assert!(merged.panels[0].y.range.end > 7.0);
        assert!(merge(vec![drawing([1.0, 5.0], 5.0)]).panels[0].lines[0].intervals.is_empty());
        let first = Drawing { is_one_repetition: true, ..drawing([1.0, 5.0], 5.0) };
        assert_eq!(merge(vec![first, drawing([3.0, 6.0], 6.0)]).panels[0].lines[0].points[0], (1.0, 1.0));
    }

    #[test]
    fn panels_of_the_same_thing_share_a_scale() {
        let mut drawing = drawing([1.0, 5.0], 5.0);
        drawing.panels[1].y = Axis::from_zero("requests/s", 2400.0);
        let merged = merge(vec![drawing]);
        assert_eq!(merged.panels[0].y.range, merged.panels[1].y.range);
        assert_eq!(merged.panels[0].y.ticks, [0.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0]);
        assert!(merged.panels[2].y.range.end < 2.0, "that of another thing stays");
        let log = |from: f64, to: f64| Axis::powers_of_ten("", [from, to].into_iter());
        assert_eq!(together(&log(0.0, 2.0), &log(-3.0, 1.0)).ticks, [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0]);
    }

    #[test]
    fn a_dashed_line_means_one_thing_and_the_legend_says_it() {
        let mut drawing = drawing([1.0, 5.0], 5.0);
        drawing.panels[0].lines.push(Line::new(Style::BASELINE.ideal(), vec![(1.0, 5.0), (2.0, 5.0)]));
        drawing.legend = vec![("ours".to_owned(), Style::OURS)];
        drawing.dashed = Some("ideal");
        let svg = draw("t", vec![drawing]).unwrap();
        assert!(svg.contains("ours") && svg.contains("ideal"), "{svg}");
    }
}
