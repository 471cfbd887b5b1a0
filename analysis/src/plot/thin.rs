//! Fewer points of a series that still show all of it: of each span of time the first, the lowest,
//! the highest and the last (M4: Jugel et al. 2014). A drawing of a width of as many spans looks as
//! it would with every sample: no peak is lost, which a choice by area (LTTB) may do.

/// Most points of a series in a drawing.
pub const POINTS_MAX: usize = 2000;

/// At most `most` of the points, in their order. An unknown value (NaN) is a gap and stays one.
pub fn envelope(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    if points.len() <= most {
        return points.to_vec();
    }
    let spans = (most / 4).max(1);
    let (first, last) = (points[0].0, points[points.len() - 1].0);
    let length = (last - first).max(f64::MIN_POSITIVE);
    let span = |x: f64| (((x - first) / length * spans as f64) as usize).min(spans - 1);
    let mut kept = Vec::with_capacity(most);
    let mut from = 0;
    while from < points.len() {
        let mine = span(points[from].0);
        let behind = points[from..].iter().position(|point| span(point.0) != mine);
        let to = behind.map_or(points.len(), |count| from + count);
        kept.extend(corners(&points[from..to]));
        from = to;
    }
    kept
}

/// The first, the lowest, the highest and the last point, each once, in their order.
fn corners(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let known = || points.iter().enumerate().filter(|(_, point)| !point.1.is_nan());
    let by = |a: &(usize, &(f64, f64)), b: &(usize, &(f64, f64))| a.1.1.total_cmp(&b.1.1);
    let (low, high) = (known().min_by(by), known().max_by(by));
    let mut places = vec![0, points.len() - 1];
    places.extend([low, high].into_iter().flatten().map(|(place, _)| place));
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|place| points[place]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_and_ends_stay() {
        let mut points: Vec<(f64, f64)> =
            (0..100_000).map(|i| (f64::from(i), (f64::from(i) * 0.01).sin())).collect();
        points[54_321].1 = 50.0;
        points[77_777].1 = -50.0;
        let few = envelope(&points, 2000);
        assert!(few.len() <= 2000 && few.len() > 1000, "{}", few.len());
        assert_eq!((few[0], few[few.len() - 1]), (points[0], points[99_999]));
        assert!(few.contains(&points[54_321]) && few.contains(&points[77_777]));
        assert!(few.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn few_stay_as_they_are() {
        let points = [(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0)];
        assert_eq!(format!("{:?}", envelope(&points, 3)), format!("{points:?}"));
        let alike = vec![(1.0, f64::NAN); 10];
        assert_eq!(envelope(&alike, 4).len(), 2);
        assert!(envelope(&[], 4).is_empty());
    }
}
