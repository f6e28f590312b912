//! The nearest known name to a mistyped one.

/// The candidate with the smallest edit distance to `word`, if it is near enough to be meant.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters wrong is a typo; more is another word.
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, removals, replacements and swaps of neighbours that turn `left` into `right`.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, &from) in left.iter().enumerate() {
        let mut line = Vec::with_capacity(above.len());
        line.push(row + 1);
        for (column, &to) in right.iter().enumerate() {
            let replaced = above[column] + usize::from(from != to);
            let mut best = replaced.min(above[column + 1] + 1).min(line[column] + 1);
            if row > 0 && column > 0 && from == right[column - 1] && left[row - 1] == to {
                best = best.min(before[column - 1] + 1);
            }
            line.push(best);
        }
        before = core::mem::replace(&mut above, line);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_near_and_other_words_are_not() {
        let names = ["listen", "role", "cores", "data_dir"];
        assert_eq!(nearest("lisen", names), Some("listen"));
        assert_eq!(nearest("lsiten", names), Some("listen"));
        assert_eq!(nearest("datadir", names), Some("data_dir"));
        assert_eq!(nearest("core", names), Some("cores"));
        assert_eq!(nearest("password", names), None);
        assert_eq!(nearest("", names), None);
    }

    #[test]
    fn distances_are_those_of_the_textbook() {
        for (left, right, expected) in [("", "", 0), ("kitten", "sitting", 3), ("ab", "ba", 1), ("abc", "", 3)] {
            assert_eq!(distance(left, right), expected, "{left} {right}");
            assert_eq!(distance(right, left), expected, "{right} {left}");
        }
    }
}
