//! Figures: panels side by side, with one legend below them, as SVG. A crate of its own for its dependency, which the lab
//! and the simulator share.
//!
//! Colours are those of Okabe and Ito, which the colour-blind tell apart; each configuration has a marker of its own too.
#![forbid(unsafe_code)]

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A figure that cannot be drawn, and why.
#[derive(Debug, thiserror::Error)]
#[error("the figure cannot be drawn: {0}")]
pub struct Error(String);

const WIDTH: u32 = 1240;
const HEIGHT: u32 = 560;
const TITLE_HEIGHT: u32 = 52;
const LEGEND_HEIGHT: u32 = 44;
/// Of a legend entry's line, and between it and its text, in pixels.
const SAMPLE_WIDTH: i32 = 44;
const SAMPLE_GAP: i32 = 10;
/// Of a character of the legend on average, in pixels.
const LETTER_WIDTH: i32 = 8;
const ENTRY_GAP: i32 = 36;
const FONT: &str = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// So many lines can be told apart.
pub const SERIES_MAX: usize = 10;

type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    colour: RGBColor,
    marker: Marker,
    dashed: bool,
    /// In pixels.
    width: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Marker {
    Circle,
    Square,
    Triangle,
    None,
}

impl Look {
    /// What ours is compared with.
    pub const BASELINE: Look = Look::solid(RGBColor(213, 94, 0), Marker::Square);
    /// What it is all about.
    pub const OURS: Look = Look::solid(RGBColor(0, 114, 178), Marker::Circle);
    /// What is neither.
    pub const THIRD: Look = Look::solid(RGBColor(0, 158, 115), Marker::Triangle);
    /// What is a variant of the third.
    pub const FOURTH: Look = Look::solid(RGBColor(204, 121, 167), Marker::Triangle);
    /// What is a variant of ours.
    pub const FIFTH: Look = Look::solid(RGBColor(86, 180, 233), Marker::Square);
    /// Single values that a paper prints.
    pub const PAPER: Look = Look::solid(INK, Marker::Triangle);
    /// What is to be reached.
    pub const TARGET: Look = Look::solid(INK, Marker::None).ideal();

    const fn solid(colour: RGBColor, marker: Marker) -> Look {
        Look { colour, marker, dashed: false, width: 3 }
    }

    /// That of one of several of which nothing more is known, counted from 0; no two of the first [`SERIES_MAX`] look alike.
    pub const fn series(index: usize) -> Look {
        let look = [Look::OURS, Look::BASELINE, Look::THIRD, Look::FOURTH, Look::FIFTH][index % 5];
        if index % SERIES_MAX < 5 { look } else { Look { dashed: true, ..look } }
    }

    /// The same for what it could reach at best.
    pub const fn ideal(self) -> Look {
        Look { marker: Marker::None, dashed: true, width: 2, ..self }
    }

    /// The same for points that stand too close for markers.
    pub const fn bare(self) -> Look {
        Look { marker: Marker::None, ..self }
    }

    /// The same for a line that others are to lie on without hiding it: broad and pale.
    pub const fn beneath(self) -> Look {
        let RGBColor(red, green, blue) = self.colour;
        let colour = RGBColor(pale(red), pale(green), pale(blue));
        Look { colour, width: 7, ..self }
    }
}

/// Halfway to white.
const fn pale(part: u8) -> u8 {
    part / 2 + 127
}

/// A line of a panel.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// How it looks.
    pub look: Look,
    /// Its points, x and y.
    pub points: Vec<(f64, f64)>,
}

/// An axis: what it shows, from where to where, and the values that it names.
#[derive(Clone, Debug)]
pub struct Axis {
    /// With its unit.
    pub title: String,
    /// What it shows.
    pub range: Range<f64>,
    /// The values that it names.
    pub ticks: Vec<f64>,
    /// How it names them.
    pub label: fn(f64) -> String,
}

impl Axis {
    /// From 0 to somewhat above `max`, with up to eight round values on the way.
    pub fn from_zero(title: impl Into<String>, max: f64) -> Axis {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        Axis::between(title, 0.0, max * 1.05)
    }

    /// From `min` to `max`, which is more, with some eight round values on the way.
    pub fn between(title: impl Into<String>, min: f64, max: f64) -> Axis {
        let span = max - min;
        let power = 10f64.powf((span / 8.4).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| span / step <= 8.4);
        let step = step.unwrap_or(span);
        let first = (min / step).ceil();
        let ticks = (0..=8).map(|n| (first + f64::from(n)) * step).take_while(|tick| *tick <= max).collect();
        Axis { title: title.into(), range: min..max, ticks, label: plain }
    }

    /// 1 B to 1 MB, of which the places are powers of two.
    pub fn bytes(title: impl Into<String>) -> Axis {
        let label = |power: f64| {
            let (power, unit) = [(20, "M"), (10, "K")]
                .into_iter()
                .find(|(from, _)| power >= f64::from(*from))
                .map_or((power, ""), |(from, unit)| (power - f64::from(from), unit));
            format!("{}{unit}", plain(power.exp2()))
        };
        Axis {
            title: title.into(),
            range: -0.5..20.5,
            ticks: (0..=10).map(|n| 2.0 * f64::from(n)).collect(),
            label,
        }
    }

    /// For decimal logarithms: whole powers of ten around all of `logarithms`.
    pub fn powers_of_ten(title: impl Into<String>, logarithms: impl Iterator<Item = f64>) -> Axis {
        let finite = logarithms.filter(|value| value.is_finite());
        let (min, max) =
            finite.fold((f64::MAX, f64::MIN), |(min, max), value| (min.min(value), max.max(value)));
        let (first, last) =
            if min > max { (0.0, 1.0) } else { (min.floor(), max.ceil().max(min.floor() + 1.0)) };
        let ticks = (0..=(last - first) as u32).map(|n| first + f64::from(n)).collect();
        Axis { title: title.into(), range: first..last, ticks, label: |power| plain(10f64.powf(power)) }
    }

    /// Powers of two from `first` to `last` at equal distances; the places are their logarithms.
    pub fn powers_of_two(title: impl Into<String>, first: f64, last: f64) -> Axis {
        let (first, last) = (first.log2().round(), last.log2().round());
        let ticks = (0..=(last - first) as u32).map(|n| first + f64::from(n)).collect();
        Axis {
            title: title.into(),
            range: first - 0.4..last + 0.4,
            ticks,
            label: |power| plain(power.exp2()),
        }
    }

    /// 1, 2, 3... to `last`, with room at the ends.
    pub fn counting(title: impl Into<String>, last: u32) -> Axis {
        let every = last.div_ceil(16).max(1) as usize;
        let ticks = (1..=last).step_by(every).map(f64::from).collect();
        Axis { title: title.into(), range: 0.5..f64::from(last) + 0.5, ticks, label: plain }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        (self.label)(*value)
    }
}

/// One coordinate system.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From below.
    pub y: Axis,
    /// What it shows, the first below the others.
    pub lines: Vec<Line>,
}

/// Draws `panels` side by side under `title`, above the legend.
///
/// # Errors
/// Where the drawing fails.
pub fn draw(title: &str, panels: &[Panel], legend: &[(String, Look)]) -> Result<String, Error> {
    let mut svg = String::new();
    draw_on(SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area(), title, panels, legend)
        .map_err(|error| Error(error.to_string()))?;
    Ok(svg)
}

fn draw_on(root: Root<'_>, title: &str, panels: &[Panel], legend: &[(String, Look)]) -> Drawn {
    root.fill(&WHITE)?;
    let (head, rest) = root.split_vertically(TITLE_HEIGHT);
    let (body, foot) = rest.split_vertically(HEIGHT - TITLE_HEIGHT - LEGEND_HEIGHT);
    let centred = text(24).pos(Pos::new(HPos::Center, VPos::Center));
    head.draw(&Text::new(title.to_owned(), (WIDTH as i32 / 2, TITLE_HEIGHT as i32 / 2 + 4), centred))?;
    for (area, panel) in body.split_evenly((1, panels.len().max(1))).iter().zip(panels) {
        draw_panel(&root, area, panel)?;
    }
    draw_legend(&foot, legend)?;
    root.present()
}

fn draw_panel(root: &Root<'_>, area: &Root<'_>, panel: &Panel) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(24)
        .caption(&panel.title, text(19))
        .x_label_area_size(50)
        .y_label_area_size(72)
        .build_cartesian_2d(panel.x.clone(), panel.y.clone())?;
    chart
        .configure_mesh()
        .axis_style(INK)
        .bold_line_style(GRID)
        .max_light_lines(0)
        .label_style(text(16))
        .axis_desc_style(text(17))
        .x_desc(&panel.x.title)
        .y_desc(&panel.y.title)
        .draw()?;
    for Line { look, points } in &panel.lines {
        let pixels: Vec<_> = points.iter().map(|point| chart.backend_coord(point)).collect();
        draw_line(root, *look, &pixels)?;
    }
    Ok(())
}

fn draw_legend(area: &Root<'_>, legend: &[(String, Look)]) -> Drawn {
    let width = |label: &str| SAMPLE_WIDTH + SAMPLE_GAP + LETTER_WIDTH * label.chars().count() as i32;
    let gaps = ENTRY_GAP * (legend.len() as i32 - 1).max(0);
    let total = legend.iter().map(|(label, _)| width(label)).sum::<i32>() + gaps;
    let y = LEGEND_HEIGHT as i32 / 2 - 6;
    let mut x = (WIDTH as i32 - total) / 2;
    for (label, look) in legend {
        draw_line(area, look.bare(), &[(x, y), (x + SAMPLE_WIDTH, y)])?;
        draw_mark(area, *look, (x + SAMPLE_WIDTH / 2, y))?;
        let style = text(17).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(label.clone(), (x + SAMPLE_WIDTH + SAMPLE_GAP, y), style))?;
        x += width(label) + ENTRY_GAP;
    }
    Ok(())
}

/// A line through points in pixels of `area`.
fn draw_line(area: &Root<'_>, look: Look, pixels: &[(i32, i32)]) -> Drawn {
    let style = look.colour.stroke_width(look.width);
    if look.dashed {
        area.draw(&DashedPathElement::new(pixels.iter().copied(), 7, 6, style))?;
    } else {
        area.draw(&PathElement::new(pixels.to_vec(), style))?;
    }
    pixels.iter().try_for_each(|pixel| draw_mark(area, look, *pixel))
}

fn draw_mark(area: &Root<'_>, look: Look, (x, y): (i32, i32)) -> Drawn {
    let style = look.colour.filled();
    match look.marker {
        Marker::Circle => area.draw(&Circle::new((x, y), 6, style)),
        Marker::Square => area.draw(&Rectangle::new([(x - 5, y - 5), (x + 5, y + 5)], style)),
        Marker::Triangle => area.draw(&TriangleMarker::new((x, y), 8, style)),
        Marker::None => Ok(()),
    }
}

fn text(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// A number without needless digits.
fn plain(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_svg_with_its_texts_and_lines() {
        let look = Look::BASELINE;
        let panel = Panel {
            title: "(a) three".into(),
            x: Axis::from_zero("time (s)", 10.0),
            y: Axis::from_zero("requests/s", 2400.0),
            lines: vec![
                Line { look, points: vec![(0.0, 1.0), (10.0, 2400.0)] },
                Line { look: look.ideal(), points: vec![(0.0, 1000.0), (10.0, 1000.0)] },
                Line { look, points: vec![] },
            ],
        };
        let svg = draw("A title", &[panel.clone(), panel], &[("rigid".into(), look)]).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["A title", "(a) three", "time (s)", "requests/s", "rigid", "2000", "#D55E00"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn series_can_be_told_apart() {
        let looks: Vec<_> = (0..SERIES_MAX).map(Look::series).collect();
        for (index, look) in looks.iter().enumerate() {
            assert!(!looks[..index].contains(look), "{index}");
        }
        assert_eq!(Look::series(SERIES_MAX), looks[0]);
    }

    #[test]
    fn axes_from_zero_name_round_values() {
        assert_eq!(Axis::from_zero("", 2400.0).ticks, [0.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0]);
        assert_eq!(Axis::from_zero("", 8.0).ticks, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        for strange in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let axis = Axis::from_zero("", strange);
            assert!(axis.range.end > 0.0 && axis.ticks.len() > 1);
        }
    }

    #[test]
    fn logarithmic_axes_name_what_they_stand_for() {
        let axis = Axis::bytes("");
        let labels: Vec<_> = axis.ticks.iter().map(|tick| (axis.label)(*tick)).collect();
        assert_eq!(labels, ["1", "4", "16", "64", "256", "1K", "4K", "16K", "64K", "256K", "1M"]);
        let axis = Axis::powers_of_ten("", [0.05f64, 300.0].map(f64::log10).into_iter());
        let labels: Vec<_> = axis.ticks.iter().map(|tick| (axis.label)(*tick)).collect();
        assert_eq!(labels, ["0.01", "0.1", "1", "10", "100", "1000"]);
        assert_eq!(Axis::powers_of_ten("", [2.0].into_iter()).range, 2.0..3.0);
        assert_eq!(Axis::powers_of_ten("", [].into_iter()).range, 0.0..1.0);
    }

    #[test]
    fn numbers_have_no_needless_digits() {
        assert_eq!((plain(0.30000000000000004), plain(2000.0)), ("0.3".to_owned(), "2000".to_owned()));
    }
}
