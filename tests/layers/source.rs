//! Just enough of a Rust reader for `tests/layers.rs`: tokens without comments and literals, paths with their groups
//! expanded, and code without its tests. It knows no macros: a path inside a `macro_rules!` body counts like any other.

/// The tokens of a file: identifiers, `::`, and single signs. Comments, texts, numbers and lifetimes leave nothing.
pub fn tokens(text: &str) -> Vec<String> {
    let bytes: Vec<char> = text.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let (sign, next) = (bytes[at], bytes.get(at + 1).copied().unwrap_or(' '));
        match sign {
            '/' if next == '/' => at = end_of_line(&bytes, at),
            '/' if next == '*' => at = end_of_block_comment(&bytes, at),
            '"' => at = end_of_text(&bytes, at + 1),
            'r' | 'b' | 'c' if starts_text(&bytes, at) => at = end_of_prefixed_text(&bytes, at),
            '\'' => at = end_of_quote(&bytes, at),
            ':' if next == ':' => {
                tokens.push("::".to_owned());
                at += 2;
            }
            _ if sign.is_alphabetic() || sign == '_' => {
                let end = end_of_word(&bytes, at);
                tokens.push(bytes[at..end].iter().collect());
                at = end;
            }
            _ if sign.is_ascii_digit() => at = end_of_word(&bytes, at),
            _ if sign.is_whitespace() => at += 1,
            _ => {
                tokens.push(sign.to_string());
                at += 1;
            }
        }
    }
    tokens
}

fn end_of_line(text: &[char], at: usize) -> usize {
    (at..text.len()).find(|at| text[*at] == '\n').unwrap_or(text.len())
}

fn end_of_block_comment(text: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < text.len() {
        match (text[at], text.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// The end of a text whose opening quote was just passed.
fn end_of_text(text: &[char], mut at: usize) -> usize {
    while at < text.len() {
        match text[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// Whether a word of `r`, `b`, `c` and `#` at this place opens a text: `r"`, `br##"`, `b'`.
fn starts_text(text: &[char], at: usize) -> bool {
    let prefix: Vec<char> = text[at..].iter().copied().take_while(|sign| "rbc#".contains(*sign)).take(20).collect();
    let letters = prefix.iter().take_while(|sign| **sign != '#').count();
    match text.get(at + prefix.len()) {
        Some('"') => letters <= 2,
        Some('\'') => prefix == ['b'],
        _ => false,
    }
}

fn end_of_prefixed_text(text: &[char], mut at: usize) -> usize {
    let raw = text[at..].iter().take_while(|sign| "rbc".contains(**sign)).any(|sign| *sign == 'r');
    while "rbc".contains(text[at]) {
        at += 1;
    }
    if text[at] == '\'' {
        return end_of_quote(text, at);
    }
    let hashes = text[at..].iter().take_while(|sign| **sign == '#').count();
    at += hashes + 1;
    if !raw {
        return end_of_text(text, at);
    }
    while at < text.len() {
        let closes = text[at] == '"' && text[at + 1..].iter().take_while(|sign| **sign == '#').count() >= hashes;
        at += 1;
        if closes {
            return at + hashes;
        }
    }
    at
}

/// The end of a character or a lifetime.
fn end_of_quote(text: &[char], at: usize) -> usize {
    match (text.get(at + 1), text.get(at + 2)) {
        (Some('\\'), _) => (at + 3..text.len()).find(|at| text[*at] == '\'').map_or(text.len(), |end| end + 1),
        (Some(_), Some('\'')) => at + 3,
        _ => end_of_word(text, at + 1),
    }
}

fn end_of_word(text: &[char], at: usize) -> usize {
    let is_part = |sign: &char| sign.is_alphanumeric() || *sign == '_';
    at + text[at.min(text.len())..].iter().take_while(|sign| is_part(sign)).count()
}

/// The tokens that are no test: items under `#[cfg(test)]` (also within `all(..)`) are left out.
pub fn without_tests(tokens: &[String]) -> Vec<String> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if is(tokens, at, &["#", "[", "cfg", "("]) {
            let end = end_of_group(tokens, at + 1);
            let condition = &tokens[at..end];
            let negated = condition.windows(3).any(|part| part[0] == "not" && part[2] == "test");
            if !negated && condition.iter().any(|token| token == "test") {
                at = end_of_item(tokens, end);
                continue;
            }
        }
        kept.push(tokens[at].clone());
        at += 1;
    }
    kept
}

fn is(tokens: &[String], at: usize, expected: &[&str]) -> bool {
    tokens.len() >= at + expected.len() && tokens[at..].iter().zip(expected).all(|(token, word)| token == word)
}

/// The position after the group that opens at `at`.
fn end_of_group(tokens: &[String], at: usize) -> usize {
    let mut depth = 0_usize;
    for (position, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return position + 1;
        }
    }
    tokens.len()
}

/// The position after the item that begins at `at`: its semicolon or its braces.
fn end_of_item(tokens: &[String], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" => return at + 1,
            "{" => return end_of_group(tokens, at),
            "(" | "[" => at = end_of_group(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// The attributes that a file opens with, such as `#![deny(..)]`.
pub fn inner_attributes(tokens: &[String]) -> impl Iterator<Item = &[String]> {
    let starts = (0..tokens.len()).filter(|at| is(tokens, *at, &["#", "!", "["]));
    starts.map(|at| &tokens[at..end_of_group(tokens, at + 2)])
}

/// A path as it is written, groups expanded, with the number of inline modules around it.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    pub words: Vec<String>,
    pub inline_modules: usize,
}

/// All paths of two words or more, and single words after `use`.
pub fn paths(tokens: &[String]) -> Vec<Path> {
    let mut found = Vec::new();
    let mut braces = Vec::new();
    for at in 0..tokens.len() {
        match tokens[at].as_str() {
            "{" => braces.push(at >= 2 && tokens[at - 2] == "mod"),
            "}" => _ = braces.pop(),
            _ if starts_path(tokens, at) => {
                let mut expanded = Vec::new();
                expand(tokens, at, &[], &mut expanded);
                let inline_modules = braces.iter().filter(|is_module| **is_module).count();
                found.extend(expanded.into_iter().map(|words| Path { words, inline_modules }));
            }
            _ => {}
        }
    }
    found
}

fn is_word(token: &str) -> bool {
    token.starts_with(|sign: char| sign.is_alphabetic() || sign == '_')
}

fn starts_path(tokens: &[String], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| tokens[before].as_str());
    let goes_on = at >= 2 && is_word(&tokens[at - 2]) && !matches!(tokens[at - 2].as_str(), "use" | "in" | "return");
    let continues = before == Some(".") || before == Some("::") && goes_on;
    let imported = matches!(before, Some("use" | "extern"));
    is_word(&tokens[at]) && !continues && (imported || is(tokens, at + 1, &["::"]))
}

/// Appends all paths that begin with `prefix` and go on at `at`; returns the position after them.
fn expand(tokens: &[String], mut at: usize, prefix: &[String], into: &mut Vec<Vec<String>>) -> usize {
    let mut words = prefix.to_vec();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") if !words.is_empty() && tokens[at - 1] == "::" => {
                at += 1;
                while at < tokens.len() && tokens[at] != "}" {
                    at = if is_word(&tokens[at]) { expand(tokens, at, &words, into) } else { at + 1 };
                    if is(tokens, at, &["as"]) {
                        at += 2;
                    }
                }
                return at + 1;
            }
            Some(word) if is_word(word) => {
                words.push(word.to_owned());
                at += 1;
            }
            _ => break,
        }
        if !is(tokens, at, &["::"]) {
            break;
        }
        at += 1;
    }
    into.push(words);
    at
}
