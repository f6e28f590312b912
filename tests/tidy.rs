//! The texts of the project hold: links lead somewhere, the code in the README is the example that compiles, and the
//! README and `.ci/run` have the same test command. And the judge of `.ci/instructions` can fail.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../benches/instructions/judge.rs"]
mod judge;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn texts() -> Vec<PathBuf> {
    let mut texts = vec![root().join("README.md"), root().join("flamegraphs/README.md")];
    for folder in ["docs", "docs/adr"] {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        texts.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    texts
}

/// Targets of `[text](target)` that are files of this project.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.starts_with('#')).collect()
}

/// What a fenced block after a marker contains.
fn block_after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(marker)?;
    let (_, rest) = rest.split_once("```rust\n")?;
    Some(rest.split_once("```")?.0)
}

#[test]
fn links_lead_to_files() {
    for text in texts() {
        let content = fs::read_to_string(&text).unwrap();
        for link in links(&content) {
            let target = text.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(target.exists(), "{}: the link {link} leads nowhere", text.display());
        }
    }
    assert_eq!(links("[a](b.md) and [c](https://d) [e](#f)"), ["b.md"]);
}

#[test]
fn the_code_in_the_readme_is_the_example() {
    let (readme, example) = (read("README.md"), read("examples/guild_pod.rs"));
    let shown = block_after(&readme, "<!-- examples/guild_pod.rs -->").expect("the README shows the example");
    let code = example.split_once("\n\n").expect("the example opens with its documentation").1;
    assert_eq!(shown, code, "copy the example into the README");
}

#[test]
fn the_readme_and_the_checks_have_the_same_test_command() {
    let command = "cargo test --workspace";
    assert!(read("README.md").contains(&format!("```sh\n{command}\n```")));
    assert!(read(".ci/run").lines().any(|line| line == format!("step \"tests\" {command}")));
}

#[test]
fn files_named_in_texts_exist() {
    for text in texts() {
        let content = fs::read_to_string(&text).unwrap();
        for name in content.split('`').skip(1).step_by(2) {
            let is_path =
                ["src/", "tests/", "docs/", "examples/", ".ci/", "config/"].iter().any(|start| name.starts_with(start));
            if is_path && !name.contains(char::is_whitespace) {
                assert!(root().join(name).exists(), "{}: there is no {name}", text.display());
            }
        }
    }
}

/// Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Uses of the macros that panic where standard output or standard error is closed or full.
fn panicking_prints(code: &str) -> impl Iterator<Item = &str> {
    let macros = ["println", "eprintln", "print", "eprint", "dbg"];
    let calls = move |line: &str| {
        let mut before = line.split("!(").map(|text| text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next());
        before.any(|name| name.is_some_and(|name| macros.contains(&name)))
    };
    code.lines().filter(move |line| !line.trim_start().starts_with("//") && calls(line))
}

#[test]
fn nothing_in_a_pod_panics_because_nobody_reads_what_it_says() {
    for file in sources(&root().join("src")) {
        let code = fs::read_to_string(&file).unwrap();
        if let Some(line) = panicking_prints(&code).next() {
            panic!("{}: write with `cli::print`, `cli::say` or a log line: {line}", file.display());
        }
    }
    assert_eq!(panicking_prints("    eprintln!(\"a\");\n// println!(\nwriteln!(f)\nblueprint!(a)").count(), 1);
}

#[test]
fn the_judge_of_instruction_counts_refuses_what_is_dearer() {
    use judge::Verdict::{Cheaper, Dearer, Same, Unrecorded};
    let verdicts = [(1000.0, Same), (1050.0, Same), (1051.0, Dearer), (950.0, Same), (949.0, Cheaper)];
    for (now, expected) in verdicts {
        assert_eq!(judge::judge(Some(1000.0), now, 5.0), expected, "{now}");
    }
    assert_eq!([10.0, 12.0, 12.1].map(|now| judge::judge(Some(10.0), now, 5.0)), [Same, Same, Dearer]);
    assert_eq!(judge::judge(None, 1.0, 5.0), Unrecorded);
}
