//! Lists of processors, in the format that the kernel uses: numbers and ranges, separated by commas.

/// The limit of a processor number, which no machine reaches.
const MOST: u32 = 65536;

/// Parses a list of processors such as `0,2-5`.
///
/// # Errors
///
/// Returns the reason why the text is invalid.
pub fn parse(text: &str) -> Result<Vec<u32>, String> {
    let number = |text: &str| match text.parse::<u32>() {
        Ok(number) if number < MOST => Ok(number),
        _ => Err(format!("{text:?} is not a processor number")),
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("{part:?} ends before it begins"));
        }
        cpus.extend(first..=last);
        if cpus.len() > MOST as usize {
            return Err("more processors than Linux supports".to_owned());
        }
    }
    Ok(cpus)
}

/// Formats a sorted list of processors so that [`parse`] can read it.
pub fn show(cpus: &[u32]) -> String {
    let ranges = cpus.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    let ranges = ranges.filter_map(|range| Some((*range.first()?, *range.last()?)));
    let texts = ranges.map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_list_round_trips() {
        assert_eq!(parse("0,2-5,1"), Ok(vec![0, 2, 3, 4, 5, 1]));
        for wrong in ["", "a", "3-1", "1-", "0-4294967295", "1,,2"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(show(&[0, 2, 3, 4, 7]), "0,2-4,7");
        assert_eq!(show(&[]), "");
    }
}
