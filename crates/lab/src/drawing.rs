//! Panels, their common scales and their legend, as one figure.

use sidelong_figure::{self as figure, Axis, Panel, Style};

use crate::error::Result;

/// What an experiment draws.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drawing {
    pub(crate) panels: Vec<Panel>,
    pub(crate) legend: Vec<(String, Style)>,
    /// What a dashed line means, the same in all panels.
    pub(crate) dashed: Option<&'static str>,
}

/// Draws it as SVG.
pub(crate) fn draw(title: &str, mut drawing: Drawing) -> Result<String> {
    share_scales(&mut drawing.panels);
    let mut legend = drawing.legend;
    // Dashed lines have one entry, which states their meaning.
    legend.retain(|(_, style)| !style.is_dashed());
    let lines = || drawing.panels.iter().flat_map(|panel| &panel.lines);
    if let Some(line) = lines().find(|line| line.style.is_dashed()) {
        let meaning = drawing.dashed.expect("an experiment that draws dashed lines says what they are");
        let is_one = lines().all(|other| !other.style.is_dashed() || other.style == line.style);
        let style = if is_one { line.style } else { Style::TARGET };
        legend.push((meaning.to_owned(), style));
    }
    Ok(figure::draw(title, &drawing.panels, &legend)?)
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
    use sidelong_figure::Line;

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
    fn panels_of_the_same_thing_share_a_scale() {
        let mut drawing = drawing([1.0, 5.0], 5.0);
        drawing.panels[1].y = Axis::from_zero("requests/s", 2400.0);
        share_scales(&mut drawing.panels);
        assert_eq!(drawing.panels[0].y.range, drawing.panels[1].y.range);
        assert_eq!(drawing.panels[0].y.ticks, [0.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0]);
        assert!(drawing.panels[2].y.range.end < 2.0, "that of another thing stays");
        let log = |from: f64, to: f64| Axis::powers_of_ten("", [from, to].into_iter());
        assert_eq!(together(&log(0.0, 2.0), &log(-3.0, 1.0)).ticks, [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0]);
    }

    #[test]
    fn a_dashed_line_means_one_thing_and_the_legend_says_it() {
        let mut drawing = drawing([1.0, 5.0], 5.0);
        drawing.panels[0].lines.push(Line::new(Style::BASELINE.ideal(), vec![(1.0, 5.0), (2.0, 5.0)]));
        drawing.legend = vec![("ours".to_owned(), Style::OURS)];
        drawing.dashed = Some("ideal");
        let svg = draw("t", drawing).unwrap();
        assert!(svg.contains("ours") && svg.contains("ideal"), "{svg}");
    }
}
