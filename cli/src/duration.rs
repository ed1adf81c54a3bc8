//! Durations as they are written on a command line: `500ms`, `30s`, `5m`, `1h30m`; a bare number is seconds.

use std::time::Duration;

/// A year and a day; no lease is longer.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Parses a duration.
pub fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration: 500ms, 30s, 5m, 1h30m, 2d, or a number of seconds");
    let seconds = |number: &str, unit: f64| {
        let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let number: f64 = Some(number).filter(|_| plain).and_then(|n| n.parse().ok()).ok_or_else(bad)?;
        Ok::<f64, String>(number * unit)
    };
    let mut total = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        total += match unit {
            "" if rest == text.trim() => seconds(number, 1.0)?,
            "ms" => seconds(number, 0.001)?,
            "s" => seconds(number, 1.0)?,
            "m" | "min" => seconds(number, 60.0)?,
            "h" => seconds(number, 3600.0)?,
            "d" => seconds(number, 86_400.0)?,
            _ => return Err(bad()),
        };
        rest = after;
    }
    let duration = Duration::try_from_secs_f64(total).map_err(|_| bad())?;
    if duration > LONGEST {
        return Err(format!("{text:?} is too long: at most 366 days"));
    }
    // Nobody writes fractions of a microsecond: they come from binary fractions.
    Ok(Duration::from_micros((duration.as_secs_f64() * 1e6).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_they_are_written() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("10", 10_000),
            ("0", 0),
            ("0.5", 500),
            ("1.5s", 1500),
            ("1m30s", 90_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn others_are_refused_with_the_forms_there_are() {
        for text in ["", "s", "5x", "-1", "1h30", "5 minutes", "1e3", "inf", "nan", "1..5", "ms5"] {
            assert!(parse(text).unwrap_err().contains("500ms, 30s"), "{text}");
        }
        assert!(parse("400d").unwrap_err().contains("at most 366 days"));
        assert!(parse("99999999999999999999999999").is_err());
    }
}
