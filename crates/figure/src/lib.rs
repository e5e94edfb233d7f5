//! Statistics of measurements ([statistics]), and figures as SVG: panels side by side with one legend below them. It is a
//! crate of its own for its dependency plotters, which the lab and the simulator share.
//!
//! Colours are those of Okabe and Ito, which people with colour blindness can tell apart. No two series differ by colour
//! alone: each has its own marker. A dashed line is never another series. It is a target, an ideal or another statistic of
//! a series, and the legend says which. Bars are for categories, between which there is nothing.
#![forbid(unsafe_code)]

pub mod statistics;

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
/// Height of each row of the legend.
const LEGEND_HEIGHT: u32 = 36;
/// Length of a legend entry's line, and the gap between it and its text, in pixels.
const SAMPLE_WIDTH: i32 = 44;
const SAMPLE_GAP: i32 = 10;
const ENTRY_GAP: i32 = 30;
/// Text sizes.
const TITLE: u32 = 25;
const CAPTION: u32 = 20;
const DESCRIPTION: u32 = 18;
const LABEL: u32 = 17;
/// Half the width of an error bar's ends.
const CAP: i32 = 6;
/// How much of the room of a category its bars take, which stand side by side.
const BARS_SHARE: f64 = 0.84;
/// Half the height of a bar in the legend.
const BAR_SAMPLE: i32 = 8;
/// The legend entry of error bars.
const INTERVAL: &str = "95 % confidence";
const FONT: &str = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// Number of series that can be told apart.
pub const SERIES_MAX: usize = 10;

type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// How a line is drawn: colour, marker, dashes, width; or its points as bars.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    colour: RGBColor,
    marker: Marker,
    dashed: bool,
    bars: bool,
    /// Line width in pixels.
    width: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Ring,
    None,
}

impl Style {
    /// The system that ours is compared with.
    pub const BASELINE: Style = Style::solid(RGBColor(213, 94, 0), Marker::Square);
    /// Our system.
    pub const OURS: Style = Style::solid(RGBColor(0, 114, 178), Marker::Circle);
    /// A third system.
    pub const THIRD: Style = Style::solid(RGBColor(0, 158, 115), Marker::Triangle);
    /// A variant of the third.
    pub const FOURTH: Style = Style::solid(RGBColor(204, 121, 167), Marker::Diamond);
    /// A variant of ours.
    pub const FIFTH: Style = Style::solid(RGBColor(86, 180, 233), Marker::Cross);
    /// Single values from a paper.
    pub const PAPER: Style = Style::solid(INK, Marker::Triangle);
    /// A target.
    pub const TARGET: Style = Style::solid(INK, Marker::None).ideal();

    const fn solid(colour: RGBColor, marker: Marker) -> Style {
        Style { colour, marker, dashed: false, bars: false, width: 3 }
    }

    /// The style of series `index`, from 0, for series without a role. The first [`SERIES_MAX`] all differ.
    pub const fn series(index: usize) -> Style {
        const FIVE: [Style; 5] = [Style::OURS, Style::BASELINE, Style::THIRD, Style::FOURTH, Style::FIFTH];
        // Each of these has the colour that differs most from that of the other series with its marker.
        const MORE: [(RGBColor, Marker); 5] = [
            (RGBColor(230, 159, 0), Marker::Ring),
            (INK, Marker::Diamond),
            (FIVE[4].colour, Marker::Square),
            (FIVE[1].colour, Marker::Cross),
            (FIVE[3].colour, Marker::Circle),
        ];
        match index % SERIES_MAX {
            index @ 0..5 => FIVE[index],
            index => Style::solid(MORE[index - 5].0, MORE[index - 5].1),
        }
    }

    /// This style, dashed: the best value that a series could reach.
    pub const fn ideal(self) -> Style {
        Style { marker: Marker::None, dashed: true, width: 2, ..self }
    }

    /// This style as bars, for categories: the bars of a panel's lines at one x stand side by side, in the order of the lines.
    pub const fn bars(self) -> Style {
        Style { bars: true, ..self }
    }

    /// Whether its line is dashed.
    pub const fn is_dashed(self) -> bool {
        self.dashed
    }

    /// This style without markers, for points that are close together.
    pub const fn bare(self) -> Style {
        Style { marker: Marker::None, ..self }
    }

    /// This style, broad and pale: a line that stays visible below others.
    pub const fn beneath(self) -> Style {
        Style { colour: self.pale(), width: 7, ..self }
    }

    const fn pale(self) -> RGBColor {
        let RGBColor(red, green, blue) = self.colour;
        RGBColor(pale(red), pale(green), pale(blue))
    }
}

/// Halfway to white.
const fn pale(part: u8) -> u8 {
    part / 2 + 127
}

/// A line of a panel.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// How it is drawn.
    pub style: Style,
    /// Its points, x and y.
    pub points: Vec<(f64, f64)>,
    /// Error bars with 95 % confidence: x, and the lower and upper end of y.
    pub intervals: Vec<(f64, (f64, f64))>,
}

impl Line {
    /// A line without error bars.
    pub fn new(style: Style, points: Vec<(f64, f64)>) -> Line {
        Line { style, points, intervals: Vec::new() }
    }

    /// A line through points x, y, with the interval of y if one is known.
    pub fn with_intervals(
        style: Style,
        points: impl IntoIterator<Item = (f64, f64, Option<(f64, f64)>)>,
    ) -> Line {
        let mut line = Line::new(style, Vec::new());
        for (x, y, interval) in points {
            line.points.push((x, y));
            line.intervals.extend(interval.map(|interval| (x, interval)));
        }
        line
    }

    /// The largest y, including error bars; 0 without points.
    pub fn most(&self) -> f64 {
        let ys = self.points.iter().map(|(_, y)| *y).chain(self.intervals.iter().map(|(_, (_, to))| *to));
        ys.filter(|y| y.is_finite()).fold(0.0, f64::max)
    }
}

/// An axis: its title, its range, and its labelled values.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The title, with its unit.
    pub title: String,
    /// Both ends.
    pub range: Range<f64>,
    /// The labelled values.
    pub ticks: Vec<f64>,
    /// How values are labelled.
    pub label: fn(f64) -> String,
    /// The labels of 1, 2, 3... on an axis of categories, in place of `label`.
    pub names: Vec<String>,
}

impl Axis {
    /// From 0 to slightly above `max`, with up to nine round values.
    pub fn from_zero(title: impl Into<String>, max: f64) -> Axis {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        Axis::between(title, 0.0, max * 1.05)
    }

    /// From `min` to the larger `max`, with up to nine round values.
    pub fn between(title: impl Into<String>, min: f64, max: f64) -> Axis {
        let span = max - min;
        let power = 10f64.powf((span / 8.4).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| span / step <= 8.4);
        let step = step.unwrap_or(span);
        let first = (min / step).ceil();
        let ticks = (0..=8).map(|n| (first + f64::from(n)) * step).take_while(|tick| *tick <= max).collect();
        Axis { title: title.into(), range: min..max, ticks, label: plain, names: Vec::new() }
    }

    /// 1 B to 1 MB; positions are logarithms to base 2.
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
            names: Vec::new(),
        }
    }

    /// Whole powers of ten around all of `logarithms`; positions are logarithms to base 10.
    pub fn powers_of_ten(title: impl Into<String>, logarithms: impl Iterator<Item = f64>) -> Axis {
        let finite = logarithms.filter(|value| value.is_finite());
        let (min, max) =
            finite.fold((f64::MAX, f64::MIN), |(min, max), value| (min.min(value), max.max(value)));
        let (first, last) =
            if min > max { (0.0, 1.0) } else { (min.floor(), max.ceil().max(min.floor() + 1.0)) };
        let ticks = (0..=(last - first) as u32).map(|n| first + f64::from(n)).collect();
        let label = |power| plain(10f64.powf(power));
        Axis { title: title.into(), range: first..last, ticks, label, names: Vec::new() }
    }

    /// Powers of two from `first` to `last`; positions are logarithms to base 2.
    pub fn powers_of_two(title: impl Into<String>, first: f64, last: f64) -> Axis {
        let (first, last) = (first.log2().round(), last.log2().round());
        let ticks = (0..=(last - first) as u32).map(|n| first + f64::from(n)).collect();
        Axis {
            title: title.into(),
            range: first - 0.4..last + 0.4,
            ticks,
            label: |power| plain(power.exp2()),
            names: Vec::new(),
        }
    }

    /// 1, 2, 3... to `last`, with room at the ends.
    pub fn counting(title: impl Into<String>, last: u32) -> Axis {
        let every = last.div_ceil(16).max(1) as usize;
        let ticks = (1..=last).step_by(every).map(f64::from).collect();
        Axis {
            title: title.into(),
            range: 0.5..f64::from(last) + 0.5,
            ticks,
            label: plain,
            names: Vec::new(),
        }
    }

    /// Categories, with room at the ends.
    pub fn categories(title: impl Into<String>, names: Vec<String>) -> Axis {
        let ticks = (1..=names.len()).map(|at| at as f64).collect();
        let range = 0.5..names.len().max(1) as f64 + 0.5;
        Axis { title: title.into(), range, ticks, label: plain, names }
    }

    /// The label of a value.
    fn label_of(&self, value: f64) -> String {
        match self.names.is_empty() {
            true => (self.label)(value),
            false => Axis::counted(&self.names, value).cloned().unwrap_or_default(),
        }
    }

    /// The one of `all` that stands at a value of [`Axis::counting`], for its label.
    pub fn counted<T>(all: &[T], value: f64) -> Option<&T> {
        (value as usize).checked_sub(1).and_then(|at| all.get(at))
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
        self.label_of(*value)
    }
}

/// One coordinate system.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The title above it.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines, drawn in this order.
    pub lines: Vec<Line>,
}

impl Panel {
    /// Gives all `panels` one y axis that covers the range of each, so that heights can be compared.
    pub fn share_scale(panels: &mut [Panel]) {
        let starts = panels.iter().map(|panel| panel.y.range.start);
        let ends = panels.iter().map(|panel| panel.y.range.end);
        let range = starts.fold(f64::MAX, f64::min)..ends.fold(f64::MIN, f64::max);
        let all = panels.iter().find(|panel| panel.y.range == range).map(|panel| panel.y.ticks.clone());
        let ticks = all.unwrap_or_else(|| {
            let mut ticks: Vec<_> = panels.iter().flat_map(|panel| panel.y.ticks.clone()).collect();
            ticks.sort_by(f64::total_cmp);
            ticks.dedup();
            ticks
        });
        for panel in panels {
            (panel.y.range, panel.y.ticks) = (range.clone(), ticks.clone());
        }
    }
}

/// A legend entry: a line and its name, or no line for the meaning of error bars.
type Entry<'a> = (Option<Style>, &'a str);

/// Draws `panels` side by side under `title`, above the legend. Error bars add an entry to the legend.
///
/// # Errors
/// If the drawing fails.
pub fn draw(title: &str, panels: &[Panel], legend: &[(String, Style)]) -> Result<String, Error> {
    let lines = || panels.iter().flat_map(|panel| &panel.lines);
    let is_told = |line: &Line| {
        let dashed = || legend.iter().filter(|(_, style)| style.dashed);
        !line.style.dashed || line.points.is_empty() || dashed().next().is_some()
    };
    debug_assert!(lines().all(is_told), "the legend does not say what a dashed line is");
    let mut entries: Vec<Entry<'_>> = legend.iter().map(|(label, style)| (Some(*style), &**label)).collect();
    if lines().any(|line| !line.intervals.is_empty()) {
        entries.push((None, INTERVAL));
    }
    let rows = legend_rows(&entries);
    let height = HEIGHT + LEGEND_HEIGHT * rows.len() as u32;
    let mut svg = String::new();
    draw_on(SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area(), title, panels, &rows)
        .map_err(|error| Error(error.to_string()))?;
    Ok(svg)
}

fn draw_on(root: Root<'_>, title: &str, panels: &[Panel], legend: &[&[Entry<'_>]]) -> Drawn {
    root.fill(&WHITE)?;
    let (head, rest) = root.split_vertically(TITLE_HEIGHT);
    let (body, foot) = rest.split_vertically(HEIGHT - TITLE_HEIGHT);
    // A long title is set smaller instead of being cut.
    let fitting = (TITLE * (WIDTH - 40)).checked_div(text_width(title, TITLE) as u32);
    let size = fitting.map_or(TITLE, |size| size.min(TITLE));
    let centred = text(size).pos(Pos::new(HPos::Center, VPos::Center));
    head.draw(&Text::new(title.to_owned(), (WIDTH as i32 / 2, TITLE_HEIGHT as i32 / 2 + 4), centred))?;
    for (area, panel) in body.split_evenly((1, panels.len().max(1))).iter().zip(panels) {
        draw_panel(&root, area, panel)?;
    }
    for (area, entries) in foot.split_evenly((legend.len().max(1), 1)).iter().zip(legend) {
        draw_legend(area, entries)?;
    }
    root.present()
}

fn draw_panel(root: &Root<'_>, area: &Root<'_>, panel: &Panel) -> Drawn {
    let labels = |axis: &Axis| axis.ticks.iter().map(|tick| text_width(&axis.label_of(*tick), LABEL)).max();
    let y_width = labels(&panel.y).unwrap_or(0) + 44;
    let x_room = f64::from(area.dim_in_pixel().0) - f64::from(y_width + 32);
    let mut x = panel.x.clone();
    if let [first, .., last] = x.ticks[..] {
        // If labels would overlap, some are left out at regular steps.
        let share = (last - first) / (x.ticks.len() - 1) as f64 / (x.range.end - x.range.start);
        let every = (f64::from(labels(&x).unwrap_or(0) + 6) / (x_room * share)).ceil().max(1.0) as usize;
        x.ticks = x.ticks.into_iter().step_by(every).collect();
    }
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(24)
        .caption(&panel.title, text(CAPTION))
        .x_label_area_size(54)
        .y_label_area_size(y_width)
        .build_cartesian_2d(x, panel.y.clone())?;
    chart
        .configure_mesh()
        .axis_style(INK)
        .bold_line_style(GRID)
        .max_light_lines(0)
        .label_style(text(LABEL))
        .axis_desc_style(text(DESCRIPTION))
        .x_desc(&panel.x.title)
        .y_desc(&panel.y.title)
        .draw()?;
    let Range { start, end } = panel.y.range;
    let bar_width = BARS_SHARE / panel.lines.iter().filter(|line| line.style.bars).count().max(1) as f64;
    let mut bar_left = -BARS_SHARE / 2.0;
    for Line { style, points, intervals } in &panel.lines {
        let mut aside = 0.0;
        if style.bars {
            for (x, y) in points {
                let at = |x: f64, y: f64| chart.backend_coord(&(x, y.clamp(start, end)));
                draw_bar(root, *style, at(x + bar_left, *y), at(x + bar_left + bar_width, start))?;
            }
            aside = bar_left + bar_width / 2.0;
            bar_left += bar_width;
        }
        for (x, (from, to)) in intervals {
            let at = |y: f64| chart.backend_coord(&(x + aside, y.clamp(start, end)));
            draw_interval(root, style.colour, at(*from), at(*to))?;
        }
        let pixels: Vec<_> = points.iter().map(|(x, y)| chart.backend_coord(&(x + aside, *y))).collect();
        match style.bars {
            true => pixels.iter().try_for_each(|pixel| draw_mark(root, *style, *pixel))?,
            false => draw_line(root, *style, &pixels)?,
        }
    }
    Ok(())
}

/// Breaks the entries into rows that are at most as wide as the figure.
fn legend_rows<'a, 'b>(mut entries: &'a [Entry<'b>]) -> Vec<&'a [Entry<'b>]> {
    let mut rows = Vec::new();
    while !entries.is_empty() {
        let fits = |count: &usize| legend_width(&entries[..*count]) <= WIDTH as i32 - 40;
        let count = (1..=entries.len()).take_while(fits).last().unwrap_or(1);
        let (row, rest) = entries.split_at(count);
        rows.push(row);
        entries = rest;
    }
    rows
}

fn legend_width(entries: &[Entry<'_>]) -> i32 {
    entries.iter().map(entry_width).sum::<i32>() + ENTRY_GAP * (entries.len() as i32 - 1).max(0)
}

fn entry_width((_, label): &Entry<'_>) -> i32 {
    SAMPLE_WIDTH + SAMPLE_GAP + text_width(label, DESCRIPTION)
}

fn draw_legend(area: &Root<'_>, entries: &[Entry<'_>]) -> Drawn {
    let y = LEGEND_HEIGHT as i32 / 2 - 4;
    let mut x = (WIDTH as i32 - legend_width(entries)) / 2;
    for entry @ (style, label) in entries {
        let middle = x + SAMPLE_WIDTH / 2;
        match style {
            Some(style) => {
                let (right, sample) = (x + SAMPLE_WIDTH, BAR_SAMPLE);
                match style.bars {
                    true => draw_bar(area, *style, (x, y - sample), (right, y + sample))?,
                    false => draw_line(area, style.bare(), &[(x, y), (right, y)])?,
                }
                draw_mark(area, *style, (middle, y))?;
            }
            None => draw_interval(area, INK, (middle, y + 11), (middle, y - 11))?,
        }
        let placed = text(DESCRIPTION).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new((*label).to_owned(), (x + SAMPLE_WIDTH + SAMPLE_GAP, y), placed))?;
        x += entry_width(entry) + ENTRY_GAP;
    }
    Ok(())
}

/// A bar between two corners, in pixels of `area`.
fn draw_bar(area: &Root<'_>, style: Style, from: (i32, i32), to: (i32, i32)) -> Drawn {
    let inside = [(from.0 + 1, from.1), (to.0 - 1, to.1)];
    area.draw(&Rectangle::new(inside, style.pale().filled()))?;
    area.draw(&Rectangle::new(inside, style.colour.stroke_width(1)))
}

/// A line through points in pixels of `area`.
fn draw_line(area: &Root<'_>, style: Style, pixels: &[(i32, i32)]) -> Drawn {
    let stroke = style.colour.stroke_width(style.width);
    if style.dashed {
        area.draw(&DashedPathElement::new(pixels.iter().copied(), 7, 6, stroke))?;
    } else {
        area.draw(&PathElement::new(pixels.to_vec(), stroke))?;
    }
    pixels.iter().try_for_each(|pixel| draw_mark(area, style, *pixel))
}

/// An error bar, with its ends.
fn draw_interval(area: &Root<'_>, colour: RGBColor, (x, from): (i32, i32), (_, to): (i32, i32)) -> Drawn {
    let style = colour.stroke_width(2);
    area.draw(&PathElement::new([(x, from), (x, to)], style))?;
    [from, to].into_iter().try_for_each(|y| area.draw(&PathElement::new([(x - CAP, y), (x + CAP, y)], style)))
}

fn draw_mark(area: &Root<'_>, style: Style, (x, y): (i32, i32)) -> Drawn {
    let fill = style.colour.filled();
    let stroke = style.colour.stroke_width(style.width);
    match style.marker {
        Marker::Circle => area.draw(&Circle::new((x, y), 6, fill)),
        Marker::Square => area.draw(&Rectangle::new([(x - 5, y - 5), (x + 5, y + 5)], fill)),
        Marker::Triangle => area.draw(&TriangleMarker::new((x, y), 8, fill)),
        Marker::Diamond => area.draw(&Polygon::new([(x, y - 8), (x + 7, y), (x, y + 8), (x - 7, y)], fill)),
        Marker::Cross => area.draw(&Cross::new((x, y), 6, stroke)),
        Marker::Ring => {
            area.draw(&Circle::new((x, y), 6, WHITE.filled()))?;
            area.draw(&Circle::new((x, y), 6, stroke))
        }
        Marker::None => Ok(()),
    }
}

/// The approximate width of a text in pixels: that in DejaVu Sans, the widest of the fonts.
fn text_width(text: &str, size: u32) -> i32 {
    (f64::from(size) * 0.58 * text.chars().count() as f64).ceil() as i32
}

fn text(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// A number without trailing zeros.
fn plain(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    format!("{rounded}")
}

#[cfg(test)]
mod tests;
