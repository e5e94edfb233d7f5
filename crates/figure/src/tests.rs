use super::*;

#[test]
fn a_figure_is_svg_with_its_texts_and_lines() {
    let style = Style::BASELINE;
    let panel = Panel {
        title: "(a) three".into(),
        x: Axis::from_zero("time (s)", 10.0),
        y: Axis::from_zero("requests/s", 2400.0),
        lines: vec![
            Line::new(style, vec![(0.0, 1.0), (10.0, 2400.0)]),
            Line::new(style.ideal(), vec![(0.0, 1000.0), (10.0, 1000.0)]),
            Line::new(style, vec![]),
        ],
    };
    let legend = [("rigid".into(), style), ("at best".into(), style.ideal())];
    let svg = draw("A title", &[panel.clone(), panel], &legend).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for text in ["A title", "(a) three", "time (s)", "requests/s", "rigid", "at best", "2000", "#D55E00"] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(!svg.contains(INTERVAL));
}

#[test]
fn error_bars_are_drawn_and_named() {
    let line = Line::with_intervals(
        Style::OURS,
        [(1.0, 2.0, Some((1.5, 2.5))), (2.0, 3.0, None), (3.0, 4.0, Some((3.0, f64::INFINITY)))],
    );
    assert_eq!(line.points, [(1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]);
    assert_eq!((line.intervals.len(), line.most()), (2, 4.0));
    let panel = |lines| Panel {
        title: "(a)".into(),
        x: Axis::counting("round", 3),
        y: Axis::from_zero("ms", 5.0),
        lines,
    };
    let drawn = |line: Line| draw("", &[panel(vec![line])], &[("ours".into(), Style::OURS)]).unwrap();
    let without = drawn(Line { intervals: Vec::new(), ..line.clone() });
    let with = drawn(line);
    let strokes = |svg: &str| svg.matches("<polyline").count();
    // Each bar is three strokes, and the legend has one, too.
    assert_eq!(strokes(&with) - strokes(&without), 3 * 3);
    assert!(with.contains(INTERVAL));
}

#[test]
fn bars_of_a_category_stand_side_by_side() {
    let (one, other) = (Style::OURS.bars(), Style::BASELINE.bars());
    let panel = Panel {
        title: String::new(),
        x: Axis::counting("", 2),
        y: Axis::from_zero("", 4.0),
        lines: vec![
            Line::new(one, vec![(1.0, 2.0), (2.0, 4.0)]),
            Line::with_intervals(other, [(1.0, 3.0, Some((2.5, 3.5)))]),
        ],
    };
    let legend = [("one".to_owned(), one), ("other".to_owned(), other)];
    let svg = draw("", &[panel], &legend).unwrap();
    let attribute = |rect: &str, name: &str| -> i32 {
        let (_, rest) = rect.split_once(&format!(" {name}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    let colour = |style: Style| {
        let RGBColor(red, green, blue) = style.pale();
        format!("#{red:02X}{green:02X}{blue:02X}")
    };
    let rects = |style: Style| {
        let of = |rect: &&str| rect.contains(&colour(style));
        let ends = |rect: &str| (attribute(rect, "x"), attribute(rect, "width"), attribute(rect, "height"));
        svg.split("<rect").skip(1).filter(of).map(ends).collect::<Vec<_>>()
    };
    // The last is the legend's.
    let (first, second) = (rects(one), rects(other));
    assert_eq!((first.len(), second.len()), (3, 2), "{svg}");
    assert!(first[0].0 + first[0].1 <= second[0].0, "{first:?} {second:?}");
    assert!(second[0].0 + second[0].1 < first[1].0);
    assert!(first[0].2 < second[0].2 && second[0].2 < first[1].2);
}

#[test]
#[should_panic(expected = "the legend does not say what a dashed line is")]
fn dashed_lines_are_explained() {
    let lines = vec![Line::new(Style::TARGET, vec![(0.0, 1.0), (1.0, 1.0)])];
    let (x, y) = (Axis::from_zero("", 1.0), Axis::from_zero("", 1.0));
    let _ = draw("", &[Panel { title: String::new(), x, y, lines }], &[("ours".into(), Style::OURS)]);
}

#[test]
fn panels_share_a_scale() {
    let panel = |y: Axis| Panel { title: String::new(), x: Axis::counting("", 2), y, lines: vec![] };
    let mut linear = [3.0, 2400.0].map(|max| panel(Axis::from_zero("", max)));
    Panel::share_scale(&mut linear);
    for Panel { y, .. } in &linear {
        assert_eq!((y.range.clone(), y.ticks.len()), (0.0..2520.0, 6));
    }
    let mut powers =
        [(0.0, 2.0), (-1.0, 1.0)].map(|(from, to)| panel(Axis::powers_of_ten("", [from, to].into_iter())));
    Panel::share_scale(&mut powers);
    for Panel { y, .. } in &powers {
        assert_eq!((y.range.clone(), &y.ticks[..]), (-1.0..2.0, &[-1.0, 0.0, 1.0, 2.0][..]));
    }
    Panel::share_scale(&mut []);
}

#[test]
fn a_legend_has_as_many_rows_as_it_needs() {
    let label = "n".repeat(40);
    let rows = |count| legend_rows(&vec![(None, &*label); count]).iter().map(|row| row.len()).collect();
    let wide: Vec<usize> = rows(5);
    assert_eq!(wide.iter().sum::<usize>(), 5);
    assert!(wide.len() > 1 && wide.iter().all(|count| *count >= 1), "{wide:?}");
    assert!(legend_rows(&[]).is_empty());
}

#[test]
fn series_can_be_told_apart() {
    let styles: Vec<_> = (0..SERIES_MAX).map(Style::series).collect();
    for (index, style) in styles.iter().enumerate() {
        assert!(!styles[..index].contains(style), "{index}");
    }
    assert_eq!(Style::series(SERIES_MAX), styles[0]);
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
fn categories_have_their_names() {
    let axis = Axis::categories("", vec!["idle".to_owned(), "busy".to_owned()]);
    assert_eq!((axis.range.clone(), &axis.ticks[..]), (0.5..2.5, &[1.0, 2.0][..]));
    assert_eq!([1.0, 2.0, 3.0].map(|at| axis.label_of(at)), ["idle", "busy", ""]);
}

#[test]
fn numbers_have_no_needless_digits() {
    assert_eq!((plain(0.30000000000000004), plain(2000.0)), ("0.3".to_owned(), "2000".to_owned()));
}
