//! Parses and formats times.

use std::time::Duration;

/// Parses a number of seconds, or a number with the unit `us`, `ms`, `s`, `m` or `h`.
///
/// # Errors
///
/// Returns the reason why the text is invalid.
pub fn parse(text: &str) -> Result<Duration, String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit {unit:?}; use us, ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| "not a time in seconds, nor with us, ms, s, m or h".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "too long".to_owned())
}

/// Formats a time so that [`parse`] can read it. The unit is hours or minutes if that gives a whole number, otherwise
/// seconds, or a smaller unit below one second.
pub fn show(time: Duration) -> String {
    let seconds = time.as_secs();
    match time {
        Duration::ZERO => "0s".to_owned(),
        _ if time.subsec_nanos() == 0 && seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if time.subsec_nanos() == 0 && seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ if seconds > 0 => format!("{}s", time.as_secs_f64()),
        _ if time.subsec_nanos() >= 1_000_000 => format!("{}ms", f64::from(time.subsec_nanos()) / 1e6),
        _ => format!("{}us", f64::from(time.subsec_nanos()) / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_have_units_or_are_seconds() {
        let read = |text| parse(text).map(|time| time.as_micros()).ok();
        assert_eq!(
            ["10s", "2m", "5", "0.5", "250ms", "7us", "1h"].map(read),
            [
                Some(10_000_000),
                Some(120_000_000),
                Some(5_000_000),
                Some(500_000),
                Some(250_000),
                Some(7),
                Some(3_600_000_000)
            ]
        );
        for wrong in ["", "s", "-1", "1d", "1e400", "99999999999999999999999999h", "1.2.3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn formatted_time_is_as_typed() {
        for text in ["0s", "7us", "3.5us", "250ms", "1.5ms", "5s", "1.5s", "90s", "2m", "1h", "8760h"] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
        assert_eq!(show(Duration::from_nanos(1)), "0.001us");
    }

    proptest! {
        #[test]
        fn formatted_time_parses_back(time in 0..u64::from(u32::MAX) * 1_000_000) {
            let time = Duration::from_nanos(time);
            let again = parse(&show(time)).unwrap();
            prop_assert!(again.abs_diff(time) <= Duration::from_nanos(1), "{time:?} is shown as {} and read as {again:?}", show(time));
        }
    }
}
