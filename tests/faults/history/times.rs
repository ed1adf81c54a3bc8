//! Spans of time, in microseconds.

/// From the first up to, but without, the second.
pub type Span = (u64, u64);

/// The same time in spans that are in order and do not touch.
pub fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
    for (from, until) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ if from < until => merged.push((from, until)),
            _ => {}
        }
    }
    merged
}

/// What of `span` is in none of these, which must be [`merged`].
pub fn outside(span: Span, merged: &[Span]) -> Vec<Span> {
    let (mut from, mut rest) = (span.0, Vec::new());
    let first = merged.partition_point(|it| it.1 <= span.0);
    for it in merged[first..].iter().take_while(|it| it.0 < span.1) {
        if from < it.0 {
            rest.push((from, it.0));
        }
        from = it.1;
    }
    if from < span.1 {
        rest.push((from, span.1));
    }
    rest
}

/// How long they are together.
pub fn length(spans: &[Span]) -> u64 {
    spans.iter().map(|(from, until)| until - from).sum()
}

#[test]
fn spans_are_merged_and_cut_out() {
    let some = merged(vec![(30, 40), (10, 20), (15, 25), (50, 50), (25, 26)]);
    assert_eq!(some, [(10, 26), (30, 40)]);
    assert_eq!(outside((0, 100), &some), [(0, 10), (26, 30), (40, 100)]);
    assert_eq!(outside((12, 35), &some), [(26, 30)]);
    assert_eq!(outside((12, 20), &some), []);
    assert_eq!(length(&outside((20, 45), &some)), 9);
}
